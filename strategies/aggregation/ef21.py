"""EF21 on the server: estimates of the clients' updates (the client's side: `clients.compression.error_feedback`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update
from strategies.checkpoint import matching
from strategies.roster import Ints


class Estimates:
    """EF21 estimates g_i of the clients' updates: dense float32 (N,), bit for bit equal to the clients' own.

    A client sends the change of its estimate. After a failed reply the two are no longer equal. Then the server drops
    its estimate, and the next instruction tells the client to start again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._of: dict[int, NDArray[np.float32]] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._of

    def update(self, clients: Ints, changes: Sequence[Update], failed: Ints) -> tuple[Update, ...]:
        """Add the `changes`, and drop the estimates of `failed`. Returns the clients' estimated updates, dense."""
        # A new dict, so that a shallow copy of this object keeps the old estimates.
        self._of = dict(self._of)
        for client, change in zip(clients.tolist(), changes, strict=True):
            if client in self._of:
                places = slice(None) if change.indices is None else change.indices
                self._of[client] = self._of[client].copy()
                self._of[client][places] += change.values
            else:
                self._of[client] = change.dense()
        for client in failed.tolist():
            self._of.pop(client, None)
        return tuple(Update(self._size, None, self._of[client]) for client in clients.tolist())

    def state(self) -> dict[str, NDArray[Any]]:
        """The estimates by client."""
        return {str(client): estimate for client, estimate in self._of.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned."""
        like = np.zeros(self._size, np.float32)
        self._of = {int(client): matching(state, client, like) for client in state}
