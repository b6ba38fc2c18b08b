"""Grid of a simulation: it is recognised, and it tells of each reply that is stored, so that no one polls for it.

It uses `InMemoryGrid` and `LinkState.store_message_res`. A grid of Flower's that says what it is and tells of replies
would replace it.
"""

from typing import TypeGuard

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid

from strategies.round.flower_grid import Arrivals


def is_simulated(grid: object) -> TypeGuard[InMemoryGrid]:
    """True for the grid of a simulation. It is in this process, so no client of another process can be behind it."""
    return isinstance(grid, InMemoryGrid)


def arrivals(grid: Grid) -> Arrivals | None:
    """Arrivals of replies in the in-memory grid of a simulation; None for any other grid."""
    if not is_simulated(grid):
        return None
    arrived, store = Arrivals(), grid.state.store_message_res

    def store_message_res(message: Message) -> str | None:
        stored = store(message)
        arrived.put(message.metadata.reply_to_message_id)
        return stored

    grid.state.store_message_res = store_message_res  # type: ignore[method-assign]
    return arrived
