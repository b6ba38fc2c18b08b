"""Last updates: the update that each client sent last, kept on the server for the methods that read it."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fedsel_app.wire.codec import Update
from strategies.checkpoint import Arrays
from strategies.roster import Outcome


class LastUpdates(Mapping[int, Update]):
    """Client id -> its last update that was aggregated.

    Parameters
    ----------
    part : keeps less than the whole update of each client, such as one layer of it; None: all of it
    """

    def __init__(self, part: Callable[[Update], Update] | None = None) -> None:
        self._part = part
        self._updates: dict[int, Update] = {}

    def __getitem__(self, client: int) -> Update:
        return self._updates[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._updates)

    def __len__(self) -> int:
        return len(self._updates)

    def add(self, outcome: Outcome) -> None:
        """Keep the updates of a round's outcome in place of the same clients' earlier ones."""
        parts = map(self._part, outcome.updates) if self._part else outcome.updates
        self._updates |= dict(zip(outcome.clients.tolist(), parts, strict=True))

    def state(self) -> Arrays:
        """Arrays named by client: its update's size and values, and indices unless the update is dense."""
        arrays: Arrays = {"clients": np.array(sorted(self), np.int64)}
        for client, update in self.items():
            arrays[f"size-{client}"], arrays[f"values-{client}"] = np.array(update.size), update.values
            if update.indices is not None:
                arrays[f"indices-{client}"] = update.indices
        return arrays

    def load_state(self, state: Arrays) -> None:
        """Take up a state that `state` returned."""
        self._updates = {
            client: Update(int(state[f"size-{client}"]), state.get(f"indices-{client}"), state[f"values-{client}"])
            for client in state["clients"].tolist()
        }
