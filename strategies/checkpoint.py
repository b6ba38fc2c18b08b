"""A run's state as named arrays: what it needs to go on as if it had never stopped. Randomness needs none of it."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

Arrays = dict[str, NDArray[Any]]


class Stateful(Protocol):
    """Something whose state can be taken and put back."""

    def state(self) -> Arrays:
        """Named arrays that nothing else changes from now on."""

    def load_state(self, state: Arrays) -> None:
        """Take up a state that `state` returned."""


def gather(parts: Mapping[str, Stateful]) -> Arrays:
    """The states of all parts, each array's name behind its part's."""
    return {f"{part}/{name}": array for part, owner in parts.items() for name, array in owner.state().items()}


def scatter(arrays: Mapping[str, NDArray[Any]], parts: Mapping[str, Stateful]) -> None:
    """Put back what `gather` collected.

    Raises
    ------
    ConfigError
        If the arrays are not those of such parts.
    """
    for part, owner in parts.items():
        mine = {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}
        try:
            owner.load_state(mine)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ConfigError(
                f"The checkpoint does not fit this run: the state of its {part} cannot be taken up ({error!r}). "
                "Start the run anew with another 'out'."
            ) from error


def taken(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any]) -> NDArray[Any]:
    """One array of a checkpoint, of the same kind and shape as `like`. Raises ConfigError if it is not."""
    array = arrays.get(name)
    if array is None or array.dtype != like.dtype or array.shape != like.shape:
        found = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise ConfigError(
            f"The checkpoint does not fit this run: its '{name}' should be {like.dtype} {like.shape}, but is {found}. "
            "Start the run anew with another 'out'."
        )
    return np.array(array)


class Best:
    """The global model with the best score so far; the first one until there is a score."""

    def __init__(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> None:
        self.parameters, self.buffers = parameters, buffers
        self._score = -np.inf

    def offer(self, score: float, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> None:
        """Keep the model if its score is above all before it."""
        if score > self._score:
            self._score, self.parameters, self.buffers = score, parameters, buffers

    def state(self) -> Arrays:
        """The model and its score."""
        return {"score": np.array(self._score), "parameters": self.parameters, "buffers": self.buffers}

    def load_state(self, state: Arrays) -> None:
        """Take up a state that `state` returned."""
        self.parameters = taken(state, "parameters", self.parameters)
        self.buffers = taken(state, "buffers", self.buffers)
        self._score = float(taken(state, "score", np.array(0.0)))
