"""EF21 on the server: an estimate of every client's update (clients: `clients.compression.error_feedback`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update
from strategies.roster import Ints


class Estimates:
    """g_i of each client that came back since it was last lost: dense float32 (N,), bit by bit the client's own.

    What a client sends is the change of its estimate; a lost reply leaves the two unequal, so that the estimate is
    dropped here, and the next instruction has the client start anew.
    """

    def __init__(self) -> None:
        self._of: dict[int, NDArray[np.float32]] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._of

    def copy(self) -> "Estimates":
        """Estimates that move on by themselves."""
        copied = Estimates()
        copied._of = dict(self._of)
        return copied

    def take(self, clients: Ints, changes: Sequence[Update], failed: Ints) -> tuple[Update, ...]:
        """The clients' updates as they are now estimated, dense, after `changes`; those of `failed` are forgotten."""
        for client, change in zip(clients.tolist(), changes, strict=True):
            if client in self._of:
                places = slice(None) if change.indices is None else change.indices
                moved = self._of[client].copy()
                moved[places] += change.values
                self._of[client] = moved
            else:
                self._of[client] = change.dense()
        for client in failed.tolist():
            self._of.pop(client, None)
        return tuple(Update(self._of[client].size, None, self._of[client]) for client in clients.tolist())

    def state(self) -> dict[str, NDArray[Any]]:
        """The estimates by client: what `load_state` needs to go on identically."""
        return {str(client): estimate for client, estimate in self._of.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""
        self._of = {int(client): estimate for client, estimate in state.items()}
