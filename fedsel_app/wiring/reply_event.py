"""Grid of a simulation: it signals each reply that is stored, so that no one polls for it.

It uses `InMemoryGrid` and `LinkState.store_message_res`. A grid of Flower's that signals replies would replace it.
"""

from threading import Event

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid


def reply_event(grid: Grid) -> Event | None:
    """Event that is set when the in-memory grid of a simulation has a new reply; None for any other grid."""
    if not isinstance(grid, InMemoryGrid):
        return None
    arrived, store = Event(), grid.state.store_message_res

    def store_message_res(message: Message) -> str | None:
        stored = store(message)
        arrived.set()
        return stored

    grid.state.store_message_res = store_message_res  # type: ignore[method-assign]
    return arrived
