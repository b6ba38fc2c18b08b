"""Checkpoint: the state of a run as named arrays.

A run that resumes from it gives the same bits as an uninterrupted run. Random streams need no state: they are functions
of seed, purpose, round and client.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

Arrays = dict[str, NDArray[Any]]


class Stateful(Protocol):
    """A part of a run whose state a checkpoint saves."""

    def state(self) -> Arrays:
        """Named arrays that do not change later."""

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""


def gather(parts: Mapping[str, Stateful]) -> Arrays:
    """The states of all parts. The name of an array is "part/name"."""
    return {f"{part}/{name}": array for part, owner in parts.items() for name, array in owner.state().items()}


def scatter(arrays: Mapping[str, NDArray[Any]], parts: Mapping[str, Stateful]) -> None:
    """Load the states that `gather` returned. Raises ConfigError if the arrays do not fit these parts."""
    for part, owner in parts.items():
        own = {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}
        try:
            owner.load_state(own)
        except ConfigError:
            raise
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ConfigError(
                f"The checkpoint does not fit this run: the state of its {part} cannot be loaded ({error!r}). "
                "Start the run again with another 'out'."
            ) from error


def matching(arrays: Mapping[str, NDArray[Any]], name: str, like: NDArray[Any]) -> NDArray[Any]:
    """A copy of one array of a checkpoint. Raises ConfigError unless it has the dtype and shape of `like`."""
    array = arrays.get(name)
    if array is None or array.dtype != like.dtype or array.shape != like.shape:
        actual = "nothing" if array is None else f"{array.dtype} {array.shape}"
        raise ConfigError(
            f"The checkpoint does not fit this run: its '{name}' should be {like.dtype} {like.shape}, but it is "
            f"{actual}. Start the run again with another 'out'."
        )
    return np.array(array)


def save_fields(owner: object, fields: Iterable[str]) -> Arrays:
    """Copies of the attributes `fields` of `owner`, arrays and numbers, named without their leading underscore."""
    return {name.lstrip("_"): np.array(getattr(owner, name)) for name in fields}


def load_fields(owner: object, fields: Iterable[str], arrays: Arrays, *, growing: bool = False) -> None:
    """Restore what `save_fields` copied. With `growing`, an array that is empty in a new `owner` may have any length.

    Raises ConfigError if an array is missing, or its kind or shape differs from that of `owner`.
    """
    for name in fields:
        key, current = name.lstrip("_"), getattr(owner, name)
        like = np.asarray(current)
        if growing and key in arrays and like.ndim and not like.size:
            like = np.empty((len(arrays[key]), *like.shape[1:]), like.dtype)
        loaded = matching(arrays, key, like)
        setattr(owner, name, loaded if isinstance(current, np.ndarray) else type(current)(loaded.item()))


class Saved:
    """A part of a run whose state is its attributes `state_fields`: arrays and numbers, see `load_fields`."""

    state_fields: ClassVar[tuple[str, ...]]
    growing: ClassVar[bool] = False

    def state(self) -> Arrays:
        """Copies of the attributes, named without their leading underscore."""
        return save_fields(self, self.state_fields)

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned. Raises ConfigError as `load_fields` does."""
        load_fields(self, self.state_fields, state, growing=self.growing)


class Composed:
    """A part of a run whose state is that of its own parts."""

    def parts(self) -> Mapping[str, Stateful]:
        """Its parts by name."""
        raise NotImplementedError

    def state(self) -> Arrays:
        """The states of all parts."""
        return gather(self.parts())

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned. Raises ConfigError for the state of another run."""
        scatter(state, self.parts())


class BestModel(Saved):
    """Best global model so far by its score; before the first score, the initial model."""

    state_fields = ("_score", "parameters", "buffers")

    def __init__(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> None:
        self.parameters, self.buffers = parameters, buffers
        self._score = -math.inf

    def offer(self, score: float, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> None:
        """Keep the model if its score is above all earlier ones."""
        if score > self._score:
            self._score, self.parameters, self.buffers = score, parameters, buffers
