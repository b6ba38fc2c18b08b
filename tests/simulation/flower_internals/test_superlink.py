"""The SuperLink's stores: nodes that outlive them, and messages that are handed out whole."""

from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink import main
from flwr.superlink.federation import NoOpFederationManager

from simulation.flower_internals.superlink import FACTORIES_HOOK, in_memory_factories
from tests.support.flower_state import of_run, task_identity

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")


def test_flower_still_has_the_place_where_stores_are_made():
    assert callable(getattr(main, FACTORIES_HOOK))


def started(database):
    _, links = in_memory_factories(str(database), NoOpFederationManager())
    assert isinstance(links, LinkStateFactory)
    return links.state()


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


class Link:
    """Link state with one run and one node, to which messages are uploaded object by object."""

    def __init__(self) -> None:
        self.state: Any = started(FLWR_IN_MEMORY_DB_NAME)
        self.node = self.state.create_node(NOOP_FLWR_AID, "", b"a", 30)
        assert self.state.activate_node(self.node, 30)
        self.run_id = self.state.create_run(
            "", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )

    def ask(self, number: int) -> Message:
        content = RecordDict({"ask": ConfigRecord({"round": number})})
        return Message(content, dst_node_id=self.node, message_type="query")

    def upload(self, message: Message, sender: int) -> Any:
        """Store a message without its objects: a generator that stores them, one after the other."""
        message.metadata.__dict__.update(_run_id=self.run_id, _src_node_id=sender)
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = get_all_nested_objects(message)
        session = self.state.start_session(self.run_id)
        stored, missing = self.state.store_message_and_object_tree(
            remove_content_from_message(message), get_object_tree(message), session
        )
        assert stored
        assert set(missing) == objects.keys()
        for name in missing:
            yield self.state.store_object(self.run_id, session, name, objects[name].deflate())

    def instructions(self, limit: int | None = 1) -> list[str]:
        return [message.metadata.message_id for message in self.state.get_message_ins(self.node, limit=limit)]

    def replies(self, *asked: Message) -> list[str]:
        names = {message.metadata.message_id for message in asked}
        found = self.state.get_message_res(message_ids=names, **of_run(self.run_id))
        return [message.metadata.reply_to_message_id for message in found]


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
    """Its objects are then known to be missing, and who pulls it gets an error at once."""
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
