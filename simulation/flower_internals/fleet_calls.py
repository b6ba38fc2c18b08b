"""Fleet API calls of Flower that carry the objects of small messages: two calls a message in place of eighteen.

Flower hands over a message without its content, and then each of its objects in a call of its own, which the SuperNode
signs and the SuperLink verifies: two milliseconds of processor time. Here the answer to `PullMessages` carries the
objects of the instruction, and `PushMessages` those of the reply, as the content that Flower leaves empty there. What
has come that way is not asked for again, and a SuperLink that has handed it out takes it for received.

A SuperNode asks for it by `MARK` where Flower leaves a list empty, and sends objects along once it has received some:
Flower's own SuperLink and SuperNode get Flower's own calls. Larger messages go object by object: the duration of their
upload is measured. Calls in Flower that carry whole messages would replace this file.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectResponse,
    PushObjectRequest,
)
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.object_store import ObjectStore

from fedsel_app.network.clock import LEAST_BYTES

MARK = "fedsel-objects"
"""In `message_ids` of a call for a message: it is to carry its objects."""
MOST_BYTES = 1 << 20
"""Most bytes of an instruction's objects that its message carries; those of a reply are fewer than `LEAST_BYTES`."""


def carrying(client: Any, store: ObjectStore) -> Any:
    """Let a SuperNode's client of the Fleet API, a gRPC stub or Flower's HTTP client, carry objects; the client.

    `store` has the objects of the SuperNode, among them those of its replies.
    """
    carried = CarriedObjects(store)
    client.PullMessages = partial(carried.pull_messages, client.PullMessages)
    client.PullObject = partial(carried.pull_object, client.PullObject)
    client.ConfirmMessageReceived = partial(carried.confirm_message_received, client.ConfirmMessageReceived)
    client.PushMessages = partial(carried.push_messages, client.PushMessages)
    return client


class CarriedObjects:
    """Objects that have come with the message of a SuperNode, and calls that make use of them."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._contents: dict[str, bytes] = {}
        self._message = ""
        self._carrying = False

    def pull_messages(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Ask for a message with its objects, and keep those."""
        request.message_ids.append(MARK)
        response = call(request)
        for message in response.messages_list:
            self._contents = detach(message)
            if self._contents:
                self._message, self._carrying = message.metadata.message_id, True
        return response

    def pull_object(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Answer with an object that has come, or else call."""
        content = self._contents.get(request.object_id)
        if content is None:
            return call(request)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def confirm_message_received(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Confirm nothing for a message that has come with its objects."""
        if request.message_object_id != self._message:
            return call(request)
        self._contents, self._message = {}, ""
        return ConfirmMessageReceivedResponse()

    def push_messages(self, call: Callable[[Any], Any], request: Any) -> Any:
        """Push a reply with its objects, if the SuperLink carries some."""
        if self._carrying:
            for message, tree in zip(request.messages_list, request.message_object_trees, strict=True):
                attach(message, stored_contents(self._store, tree), LEAST_BYTES - 1)
        return call(request)


def carry_objects(handlers: Any) -> None:
    """Let Flower's handlers of the Fleet API hand out instructions with their objects, and take replies with theirs."""
    pull, push = handlers.pull_messages, handlers.push_messages

    def pull_messages(request: Any, state: Any, store: Any) -> Any:
        response = pull(request=request, state=state, store=store)
        if MARK in request.message_ids:
            for message, tree in zip(response.messages_list, response.message_object_trees, strict=True):
                run_id, name = message.metadata.run_id, message.metadata.message_id
                carried_bytes = attach(message, stored_contents(store, tree), MOST_BYTES)
                if carried_bytes:
                    state.store_traffic(run_id, bytes_sent=carried_bytes, bytes_recv=0)
                    received = ConfirmMessageReceivedRequest(node=request.node, run_id=run_id, message_object_id=name)
                    handlers.confirm_message_received(request=received, state=state, store=store)
        return response

    def push_messages(request: Any, state: Any) -> Any:
        contents: dict[str, bytes] = {}
        for message in request.messages_list:
            contents |= detach(message)
        response = push(request=request, state=state)

        def stored(name: str) -> bool:
            part = PushObjectRequest(node=request.node, run_id=request.messages_list[0].metadata.run_id)
            part.session_id, part.object_id, part.object_content = response.session_id, name, contents[name]
            return bool(handlers.push_object(request=part, state=state).stored)

        missing = [name for name in response.objects_to_push if name not in contents or not stored(name)]
        response.objects_to_push[:] = missing
        return response

    handlers.pull_messages, handlers.push_messages = pull_messages, push_messages


def stored_contents(store: ObjectStore, tree: Any) -> dict[str, bytes | None]:
    """Contents of the objects of a tree; of one that is not stored nothing."""
    return {part.object_id: store.get(part.object_id) for part in iterate_object_tree(tree)}


def attach(message: Any, contents: Mapping[str, bytes | None], most_bytes: int) -> int:
    """Put the objects into the message, a Protobuf without content, if all are there and they are small enough.

    Returns their bytes, 0 where the message is left as it was.
    """
    whole_bytes = sum(map(len, filter(None, contents.values())))
    if not all(contents.values()) or whole_bytes > most_bytes or message.HasField("error"):
        return 0
    record = message.content.items.add(key=MARK).config_record
    for name, content in contents.items():
        record.items.add(key=name).value.bytes = content
    return whole_bytes


def detach(message: Any) -> dict[str, bytes]:
    """Take the objects out of the message: those that `attach` has put there."""
    carried = [item for item in message.content.items if item.key == MARK]
    contents = {part.key: part.value.bytes for item in carried for part in item.config_record.items}
    if carried:
        del message.content.items[:]
    return contents
