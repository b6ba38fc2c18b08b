"""Claims that methods select by: each is bounded by the median of what all clients said last (`loss-clip`)."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.reported_values import winsorised
from strategies.roster import Floats, Ints


class LastClaims:
    """Last claims of all clients, by kind.

    Parameters
    ----------
    kinds : names of what clients say of themselves
    multiple : largest value that counts, in multiples of the median; 0 is any, and nothing is kept
    """

    def __init__(self, clients: int, kinds: Iterable[str], multiple: float) -> None:
        self._last = {str(kind): np.full(clients, np.nan) for kind in kinds if multiple}
        self._multiple = multiple

    def bounded(self, kind: str, clients: Ints, values: Floats) -> Floats:
        """The claims that the `clients` make now, float64 (n,), cut to the bound; NaN is no claim."""
        if not self._multiple:
            return values
        said = ~np.isnan(values)
        self._last[kind][clients[said]] = values[said]
        return winsorised(values, self._multiple, self._last[kind])

    def state(self) -> dict[str, NDArray[Any]]:
        """The last claims, float64 (K,) of each kind."""
        return {kind: last.copy() for kind, last in self._last.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state that `state` returned. Raises ValueError if it is of other clients, KeyError of kinds."""
        for kind, last in self._last.items():
            if state[kind].shape != last.shape:
                raise ValueError(f"claims of {state[kind].shape} clients")
            self._last[kind] = state[kind].astype(np.float64)
