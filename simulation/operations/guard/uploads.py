"""Messages that a SuperLink stores object by object: handed out whole, and bounded if they are from a node.

- `LinkState.get_message_ins` and `get_message_res` return a message before its objects are stored. The receiver then
  sleeps for a second, or for minutes if the sender has died. With forged uploads it sleeps for 80 minutes, and no other
  client's reply is read. A server that cannot read one of the replies that it receives together loses all of them.
  `hand_out_whole` replaces these functions and `get_object`.
- `push_messages` and `push_object` of the Fleet API store whatever a node with a key sends: messages to other nodes, a
  tree of objects that a few lines make endless, and any number of bytes. `bound_uploads` replaces both functions.

A store of Flower's that keeps unfinished uploads to itself and bounds them would replace this file.
"""

import logging
from importlib import import_module
from typing import Any

from simulation.operations.guard.transport import FLEET_OVER_GRPC

LOGGER = logging.getLogger("flwr")
HANDLERS = (
    "flwr.server.superlink.fleet.message_handler.message_handler"
    if FLEET_OVER_GRPC
    else "flwr.superlink.servicer.fleet.fleet_handlers"
)
"""Module of the functions `push_messages` and `push_object` of the Fleet API."""
FINISHED = "Run is finished."
"""Flower's words for a run that takes no more replies."""
LEAST_BYTES, MOST_TIMES = 2**26, 4
"""Most bytes of a reply: this constant, and this multiple of the bytes of the message that it replies to."""


def hand_out_whole(state: Any) -> None:
    """Let a link state in memory hand out a message only when all of its objects are stored, and one reply at a time.

    If the sender uploads nothing for three minutes, the message is handed out incomplete, and its receiver fails. It
    fails at once, because an object that is not stored counts as missing, and not as delayed.
    """
    from flwr.supercore.date import now

    instructions_for, replies_to, get_object = state.get_message_ins, state.get_message_res, state.get_object
    state.left_bytes = {}
    """Message that a node has been handed -> bytes that the node may still upload for its reply."""

    def uploading(message_id: str) -> bool:
        session = state._object_push_sessions.get(state._object_push_session_by_root.get(message_id))
        return session is not None and bool(session.pending_object_ids) and session.expires_at > now()

    def get_message_ins(node_id: int, limit: int | None, **of_run: Any) -> Any:
        with state.lock:
            whole: list[Any] = []
            for message in instructions_for(node_id, None, **of_run):
                name = message.metadata.message_id
                if uploading(name) or len(whole) == limit:
                    message.metadata.delivered_at = ""
                else:
                    whole.append(message)
                    state.left_bytes[name] = LEAST_BYTES + MOST_TIMES * stored_bytes(state.object_store, name)
            for answered in state.left_bytes.keys() - state.message_ins_store.keys():
                del state.left_bytes[answered]
            return whole

    def get_message_res(message_ids: set[str], **of_run: Any) -> Any:
        with state.lock:
            replies = state.message_ins_id_to_message_res_id
            answered = [name for name in message_ids if name in replies and not uploading(replies[name])]
            return replies_to({*answered[:1], *(message_ids - replies.keys())}, **of_run)

    def get_stored(run_id: int, object_id: str) -> bytes | None:
        return get_object(run_id, object_id) or None

    state.get_message_ins, state.get_message_res, state.get_object = get_message_ins, get_message_res, get_stored


def bound_uploads() -> None:
    """Let the Fleet API store only replies of nodes, each a tree of objects, and each of so many bytes.

    Its link state must be one that hands out whole messages. A SuperLink that was started again does not know the runs
    before its start: such a run counts as finished, where Flower raises KeyError.
    """
    from flwr.proto.fleet_pb2 import PushMessagesResponse
    from flwr.proto.message_pb2 import PushObjectResponse

    handlers: Any = import_module(HANDLERS)
    push_message, push_object, check = handlers.push_messages, handlers.push_object, handlers.check_abort

    def check_abort(run_id: int, refused: list[str], state: Any) -> str | None:
        return check(run_id, refused, state) if state.get_run_status({run_id}) else FINISHED

    def push_reply(request: Any, state: Any) -> Any:
        metadata, tree = request.messages_list[0].metadata, request.message_object_trees[0]
        of_node = metadata.reply_to_message_id and metadata.src_node_id == request.node.node_id
        with state.lock:
            if of_node and tree.object_id == metadata.message_id and is_tree(tree, state.object_store):
                return push_message(request=request, state=state)
        LOGGER.warning("A message of node %s is no reply, or no tree of objects: refused.", request.node.node_id)
        return PushMessagesResponse()

    def push_bounded(request: Any, state: Any) -> Any:
        with state.lock:
            fits = takes(state, request.session_id, len(request.object_content))
        if fits:
            return push_object(request=request, state=state)
        LOGGER.warning("Node %s uploads more than its reply can need, or too late: refused.", request.node.node_id)
        state._cleanup_push_session(request.session_id, cleanup_messages=True)
        return PushObjectResponse(stored=False)

    handlers.push_messages, handlers.push_object, handlers.check_abort = push_reply, push_bounded, check_abort


def takes(state: Any, session_id: str, size: int) -> bool:
    """Count `size` bytes for the reply that an upload belongs to. False if they are too many, or there is no reply."""
    session = state._object_push_sessions.get(session_id)
    if session is None:
        return bool(session_id)  # Flower refuses an unknown one, but without one it takes what others may upload
    reply = next((state.message_res_store.get(root) for root in session.root_object_ids), None)
    if reply is None:
        return False
    question = reply.metadata.reply_to_message_id
    left: int = state.left_bytes.get(question, 0) - size
    state.left_bytes[question] = left
    return left >= 0


def is_tree(tree: Any, objects: Any) -> bool:
    """True if each object of an ObjectTree has the same parts wherever it occurs, and in the store `objects`.

    Otherwise the store would join the parts: 60 lines of two equal parts each are a tree of 2^60 objects.
    """
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

    parts: dict[str, list[str]] = {}
    for node in iterate_object_tree(tree):
        children, entry = [part.object_id for part in node.children], objects.store.get(node.object_id)
        stored = children if entry is None else entry.child_object_ids
        if stored != children or parts.setdefault(node.object_id, children) != children:
            return False
    return True


def stored_bytes(objects: Any, message_id: str) -> int:
    """Bytes of a message's objects that the store `objects` has."""
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.object_store import NoObjectInStoreError

    try:
        names = {node.object_id for node in iterate_object_tree(objects.get_object_tree(message_id))}
    except NoObjectInStoreError:
        return 0
    return sum(len(objects.get(name) or b"") for name in names)
