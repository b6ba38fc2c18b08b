"""Link state of a SuperLink in this process, and uploads to it object by object."""

from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.superlink.federation import NoOpFederationManager

from simulation.operations.guard.uploads import hand_out_whole
from tests.support.flower_state import of_run


def started() -> Any:
    """Link state of a SuperLink that has just started."""
    objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
    state: Any = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), objects).state()
    hand_out_whole(state)
    return state


class Link:
    """Link state with one run and one node, to which messages are uploaded object by object."""

    def __init__(self) -> None:
        self.state: Any = started()
        self.node = self.state.create_node(NOOP_FLWR_AID, "", b"a", 30)
        assert self.state.activate_node(self.node, 30)
        self.run_id = self.state.create_run(
            "", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP
        )

    def ask(self, number: int) -> Message:
        """A message to the node."""
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
        """Ids of the messages that the node receives."""
        return [message.metadata.message_id for message in self.state.get_message_ins(self.node, limit=limit)]

    def replies(self, *asked: Message) -> list[str]:
        """Ids of the `asked` messages for which the server receives a reply."""
        names = {message.metadata.message_id for message in asked}
        found = self.state.get_message_res(message_ids=names, **of_run(self.run_id))
        return [message.metadata.reply_to_message_id for message in found]
