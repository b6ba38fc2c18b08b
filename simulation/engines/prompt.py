"""Flower's simulation engine made prompt: messages go out, and replies come in, as they are stored."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Event

from flwr.app import Message
from flwr.common import Context
from flwr.server import Grid, ServerApp
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.vce_api import NodeToPartitionMapping
from flwr.server.superlink.linkstate import LinkState
from flwr.superlink.grid import InMemoryGrid

STOP_S, EXPIRED_S = 0.1, 10.0
"""How often to look whether the engine stops, and whether a message that nobody answers has expired."""


class PromptServerApp(ServerApp):
    """A ServerApp that hears of a reply as soon as it is stored instead of looking for it ten times a second."""

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the server."""
        if isinstance(grid, InMemoryGrid):
            grid.send_and_receive = awaiting(grid)  # type: ignore[method-assign]
        super().__call__(grid, context)


def awaiting(grid: InMemoryGrid) -> Callable[..., list[Message]]:
    """`grid.send_and_receive`, which sleeps until the grid's state stores the replies."""
    replied: dict[str, Event] = {}
    store = grid.state.store_message_res

    def store_message_res(message: Message) -> str | None:
        stored = store(message)
        if stored:
            replied.setdefault(message.metadata.reply_to_message_id, Event()).set()
        return stored

    def send_and_receive(messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        missing = set(grid.push_messages(messages))
        replies: list[Message] = []
        while missing and (left := end - time.monotonic()) > 0:
            replied.setdefault(next(iter(missing)), Event()).wait(min(left, EXPIRED_S))
            found = list(grid.pull_messages(missing))
            replies += found
            missing -= {message.metadata.reply_to_message_id for message in found}
            for message in found:
                replied.pop(message.metadata.reply_to_message_id, None)
        return replies

    grid.state.store_message_res = store_message_res  # type: ignore[method-assign]
    return send_and_receive


@contextmanager
def prompt_delivery() -> Iterator[None]:
    """Let the engine hand out messages by `deliver`."""
    add_messages_to_queue = vce_api.add_messages_to_queue
    vce_api.add_messages_to_queue = deliver
    try:
        yield
    finally:
        vce_api.add_messages_to_queue = add_messages_to_queue


def deliver(state: LinkState, queue: Queue[Message], nodes_mapping: NodeToPartitionMapping, f_stop: Event) -> None:
    """Put each message for a client into `queue` as soon as `state` has it, until `f_stop` is set.

    Flower asks ten times a second for every node's next message, and the state checks all that it holds for each: at
    K = 100 a third of a core, and 50 ms before a message is seen.
    """
    addressed: Queue[int] = Queue()
    store = state.store_message_ins

    def store_message_ins(message: Message) -> str | None:
        stored = store(message)
        addressed.put(message.metadata.dst_node_id)
        return stored

    state.store_message_ins = store_message_ins  # type: ignore[method-assign]
    for node_id in nodes_mapping:  # what was stored before now
        addressed.put(node_id)
    while not f_stop.is_set():
        try:
            node_id = addressed.get(timeout=STOP_S)
        except Empty:
            continue
        for message in state.get_message_ins(node_id=node_id, limit=None):
            queue.put(message)
