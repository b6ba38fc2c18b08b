"""The SuperLink's stores: nodes survive a restart, and messages are handed out only when they are complete."""

from datetime import timedelta
from importlib import import_module

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import NOOP_FLWR_AID
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NodeStatus
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.superlink import main

from simulation.operations.guard.superlink import FACTORIES_HOOK
from tests.support.link_state import Link, started

pytestmark = pytest.mark.usefixtures("task_identity")


def test_flower_still_has_the_place_where_stores_are_made():
    assert callable(getattr(main, FACTORIES_HOOK))


def test_a_superlink_that_is_started_again_knows_its_nodes(tmp_path):
    state = started(tmp_path / "superlink.db")
    nodes = [state.create_node(NOOP_FLWR_AID, "", key, 0) for key in (b"a", b"b", b"c", b"d")]
    online, stopped, gone, registered = nodes
    for node in (online, stopped, gone):
        assert state.activate_node(node, heartbeat_interval=30)
    assert state.deactivate_node(stopped)
    state.delete_node(owner_aid=NOOP_FLWR_AID, node_id=gone)

    again = started(tmp_path / "superlink.db")
    assert {info.node_id: info.status for info in again.get_node_info()} == {
        online: NodeStatus.ONLINE,
        stopped: NodeStatus.OFFLINE,
        registered: NodeStatus.REGISTERED,
    }
    assert again.get_node_id_by_public_key(b"a") == online
    assert not again.activate_node(online, 30), "as long as its heartbeats may be late it counts as online"
    assert again.activate_node(stopped, 30)
    with pytest.raises(ValueError, match="already in use"):
        again.create_node(NOOP_FLWR_AID, "", b"d", 0)


def test_without_a_database_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started(FLWR_IN_MEMORY_DB_NAME).create_node(NOOP_FLWR_AID, "", b"a", 0)
    assert list(tmp_path.iterdir()) == []


def test_a_message_is_handed_out_when_all_of_its_objects_are_stored():
    link = Link()
    ask = link.ask(1)
    upload = link.upload(ask, sender=1)
    while next(upload, False):
        found = link.instructions()
    assert found == [ask.metadata.message_id]
    assert link.instructions() == [], "it is handed out once"

    upload = link.upload(Message(RecordDict({"answer": ConfigRecord({"loss": 0.5})}), reply_to=ask), sender=link.node)
    while next(upload, False):
        answered = link.replies(ask)
    assert answered == [ask.metadata.message_id]


def test_an_upload_under_way_holds_up_no_other_message():
    link = Link()
    first, second, third = (link.ask(number) for number in range(3))
    upload = link.upload(first, sender=1)
    assert next(upload)
    for message in (second, third):
        assert all(link.upload(message, sender=1))
    assert link.instructions() == [second.metadata.message_id]
    assert all(upload)
    assert sorted(link.instructions(limit=None)) == sorted(m.metadata.message_id for m in (first, third))
    assert all(link.upload(Message(RecordDict(), reply_to=second), sender=link.node))
    late = link.upload(Message(RecordDict({"answer": ConfigRecord({"loss": 0.5})}), reply_to=third), sender=link.node)
    assert next(late)
    assert link.replies(second, third) == [second.metadata.message_id]
    assert all(late)
    assert link.replies(third) == [third.metadata.message_id]


def test_a_message_whose_sender_has_died_is_handed_out_as_flower_does(monkeypatch):
    """The SuperLink then reports its objects as missing, so a node that pulls them gets an error at once."""
    link = Link()
    ask = link.ask(1)
    assert next(link.upload(ask, sender=1))
    assert link.instructions() == []
    date, core = import_module("flwr.supercore.date"), import_module("flwr.supercore.corestate.in_memory_corestate")
    later = date.now() + timedelta(seconds=181)
    for session in link.state._object_push_sessions.values():
        session.expires_at -= timedelta(seconds=181)
    monkeypatch.setattr(core, "now", lambda: later)
    assert link.instructions() == [ask.metadata.message_id]
    assert [link.state.get_object(link.run_id, part.object_id) for part in [get_object_tree(ask)]] == [None]
