"""Flower's simulation engine made prompt: messages go out as they are stored, and replies are looked for more often."""

from collections.abc import Iterator
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

POLL_S, STOP_S = 0.02, 0.1


class PromptServerApp(ServerApp):
    """A ServerApp that looks for replies every `POLL_S` seconds instead of ten times a second."""

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the server."""
        if isinstance(grid, InMemoryGrid):
            grid.pull_interval = POLL_S
        super().__call__(grid, context)


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
