"""Grid of a simulation: tells of each reply as it is stored, so that nobody polls for it.

Private of Flower are `InMemoryGrid` and `LinkState.store_message_res`; a grid that wakes who waits would replace them.
"""

from threading import Event

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid


def reply_event(grid: Grid) -> Event | None:
    """Event that is set whenever the in-memory grid of a simulation has a new reply; None for another grid."""
    if not isinstance(grid, InMemoryGrid):
        return None
    arrived, store = Event(), grid.state.store_message_res

    def store_message_res(message: Message) -> str | None:
        stored = store(message)
        arrived.set()
        return stored

    grid.state.store_message_res = store_message_res  # type: ignore[method-assign]
    return arrived
