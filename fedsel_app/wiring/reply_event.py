"""Grid of a simulation: it is recognised, and it signals each reply that is stored, so that no one polls for it.

It uses `InMemoryGrid` and `LinkState.store_message_res`. A grid of Flower's that says what it is and signals replies
would replace it.
"""

from threading import Event
from typing import TypeGuard

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid


def is_simulated(grid: object) -> TypeGuard[InMemoryGrid]:
    """True for the grid of a simulation. It is in this process, so no client of another process can be behind it."""
    return isinstance(grid, InMemoryGrid)


def reply_event(grid: Grid) -> Event | None:
    """Event that is set when the in-memory grid of a simulation has a new reply; None for any other grid."""
    if not is_simulated(grid):
        return None
    arrived, store = Event(), grid.state.store_message_res

    def store_message_res(message: Message) -> str | None:
        stored = store(message)
        arrived.set()
        return stored

    grid.state.store_message_res = store_message_res  # type: ignore[method-assign]
    return arrived
