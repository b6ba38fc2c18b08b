"""The SuperLink's stores, and the nodes that outlive them."""

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID
from flwr.server.superlink.linkstate import InMemoryLinkState, LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink import main
from flwr.superlink.federation import NoOpFederationManager

from simulation.flower_internals.held_calls import Arrivals, Uploads
from simulation.flower_internals.superlink import FACTORIES_HOOK, _announce, in_memory_factories
from tests.support.flower_state import replies_at_link, task_identity

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


class PatchedState(InMemoryLinkState):
    """Link state of its own, as `_announce` changes the class."""


@pytest.fixture
def state():
    _announce(PatchedState, Uploads(Arrivals()))
    objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    return PatchedState(NoOpFederationManager(), objects.store())


def begin_upload(state, message, run_id, sender):
    """Store a message without its objects: a function that stores them, one after the other."""
    message.metadata.__dict__.update(_run_id=run_id, _src_node_id=sender, _message_id=message.object_id)
    objects = get_all_nested_objects(message)
    session = state.start_session(run_id)
    stored, missing = state.store_message_and_object_tree(
        remove_content_from_message(message), get_object_tree(message), session
    )
    assert stored
    assert set(missing) == objects.keys()
    for name in missing:
        yield state.store_object(run_id, session, name, objects[name].deflate())


def test_a_message_is_found_when_all_of_its_objects_are_stored(state):
    node = state.create_node(NOOP_FLWR_AID, "", b"a", 30)
    assert state.activate_node(node, 30)
    run_id = state.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    instruction = Message(RecordDict({"ask": ConfigRecord({"round": 1})}), dst_node_id=node, message_type="query")
    upload = begin_upload(state, instruction, run_id, sender=1)
    while next(upload, False):
        found = state.get_message_ins(node, limit=1)
    assert [message.metadata.message_id for message in found] == [instruction.metadata.message_id]
    assert state.get_message_ins(node, limit=1) == [], "it is handed out once"

    reply = Message(RecordDict({"answer": ConfigRecord({"loss": 0.5})}), reply_to=instruction)
    asked = {instruction.metadata.message_id}
    upload = begin_upload(state, reply, run_id, sender=node)
    while next(upload, False):
        found = replies_at_link(state, asked, run_id)
    assert [message.metadata.message_id for message in found] == [reply.metadata.message_id]
