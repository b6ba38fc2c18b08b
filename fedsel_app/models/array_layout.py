"""Array layout: a model's arrays as flat parameters and running statistics, and back.

A Flower client of anybody's sends its model as a list of arrays, in PyTorch usually the values of `state_dict()`, or as
arrays by their names there. The round works on vectors: the parameters, which are compressed and which a server
optimiser moves, and the running statistics of BatchNorm, which are averaged by examples. Arrays of whole numbers or
truth values (BatchNorm's `num_batches_tracked`) are neither: they stay as they are in the server's first model.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError

Vector = NDArray[np.float32]
Arrays = Sequence[NDArray[Any]] | Mapping[str, NDArray[Any]]
"""A model's arrays, in their order or by their names."""
STATISTICS = ("running_mean", "running_var")
"""Names of BatchNorm's running statistics in PyTorch's state_dict, behind the last dot."""


class LayerSlice(NamedTuple):
    """The entries [start, stop) of the flat vector that one module owns, weight and bias together."""

    name: str
    start: int
    stop: int


def batch_norm_statistics(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Positions of the running means and variances, by the order in which PyTorch's state_dict has them.

    Two float vectors of one length, followed by a single whole number (`num_batches_tracked`).
    """
    found: list[int] = []
    for position in range(2, len(arrays)):
        mean, variance, count = arrays[position - 2 : position + 1]
        pair = mean.ndim == 1 and mean.shape == variance.shape and _is_float(mean) and _is_float(variance)
        if pair and count.shape == () and np.issubdtype(count.dtype, np.integer):
            found += [position - 2, position - 1]
    return found


def named_statistics(names: Sequence[str]) -> list[int]:
    """Positions of the running means and variances, by the names that PyTorch's state_dict has for them."""
    return [position for position, name in enumerate(names) if name.split(".")[-1] in STATISTICS]


class ArrayLayout:
    """Layout of a model's arrays.

    Parameters
    ----------
    arrays
        The initial model. Arrays that are not of floats are kept; the others are float32 on the way.
    statistics
        Positions or names of the running statistics; None: those that have their names, or in a list and where the
        names are numbers ("0", "1", ...) those that `batch_norm_statistics` finds.

    Attributes
    ----------
    names : tuple of str
        Names of the arrays, in their order; empty for a list.
    parameters, statistics : tuple of int
        Positions of the arrays of either kind.
    size : int
        Number of parameters N.
    layers : tuple of LayerSlice
        A matrix (or kernel) and the vector of its outputs behind it are a layer, every other array one of its own; they
        tile [0, size).
    classes : int
        Outputs of the last layer.
    has_class_biases : bool
        True where the last layer ends with a vector of its outputs.

    Raises
    ------
    ConfigError
        Where a position or a name has no float array, or nothing is left to train.
    """

    def __init__(self, arrays: Arrays, statistics: Collection[int] | Collection[str] | None = None) -> None:
        self.names = tuple(arrays) if isinstance(arrays, Mapping) else ()
        self._arrays = [np.array(array) for array in (arrays.values() if isinstance(arrays, Mapping) else arrays)]
        floats = [position for position, array in enumerate(self._arrays) if _is_float(array)]
        chosen = self._statistics() if statistics is None else sorted({self._position(place) for place in statistics})
        if wrong := [position for position in chosen if position not in floats]:
            raise ConfigError(f"The running statistics are said to be at position {wrong[0]}, where no float array is.")
        self.statistics = tuple(chosen)
        self.parameters = tuple(position for position in floats if position not in chosen)
        if not self.parameters:
            raise ConfigError("The model has no array of floats to train: 'parameters' are a list of NumPy arrays.")
        self.size = sum(self._arrays[position].size for position in self.parameters)
        members = self._members()
        sizes = [sum(self._arrays[position].size for position in layer) for layer in members]
        starts = [0, *np.cumsum(sizes).tolist()]
        self.layers = tuple(
            LayerSlice("arrays " + " and ".join(map(str, layer)), start, stop)
            for layer, start, stop in zip(members, starts, starts[1:], strict=False)
        )
        self.has_class_biases = len(members[-1]) == 2 and self._arrays[members[-1][0]].ndim > 1
        last = self._arrays[members[-1][-1]]
        self.classes = last.shape[0] if last.ndim else 1

    def _statistics(self) -> list[int]:
        """Positions of the statistics, by the names where these say anything."""
        if all(name.isdecimal() for name in self.names):
            return batch_norm_statistics(self._arrays)
        return named_statistics(self.names)

    def _position(self, place: int | str) -> int:
        if isinstance(place, str) and place not in self.names:
            raise ConfigError(f"The running statistics are said to be {place!r}, and no array has this name.")
        return self.names.index(place) if isinstance(place, str) else place

    def _members(self) -> list[list[int]]:
        """Positions of each layer's arrays."""
        layers: list[list[int]] = []
        for position in self.parameters:
            array = self._arrays[position]
            before = layers[-1] if layers else []
            joins = len(before) == 1 and before[0] == position - 1 and array.ndim == 1
            if joins and self._arrays[before[0]].ndim and len(array) in _ends(self._arrays[before[0]]):
                before.append(position)
            else:
                layers.append([position])
        return layers

    def flatten(self, arrays: Arrays) -> tuple[Vector, Vector]:
        """The parameters, float32 (N,), and the running statistics, float32 (B,). Raises ValueError for another model.

        Another model is one with arrays of other shapes or names, or another number of them; the order of named ones
        does not matter.
        """
        arrays = self._in_order(arrays)
        shapes, expected = [array.shape for array in arrays], [array.shape for array in self._arrays]
        if shapes != expected:
            raise ValueError(
                f"The model has {len(expected)} arrays of the shapes {expected}, and {len(shapes)} of the shapes "
                f"{shapes} came: a client's fit returns all arrays that it got, in their order."
            )
        return self._joined(arrays, self.parameters), self._joined(arrays, self.statistics)

    def _in_order(self, arrays: Arrays) -> Sequence[NDArray[Any]]:
        if not isinstance(arrays, Mapping):
            return arrays
        if odd := sorted(arrays.keys() ^ set(self.names)):
            raise ValueError(
                f"The model has the {len(self.names)} arrays {', '.join(self.names)}, and the ones that came differ in "
                f"{', '.join(odd)}: a client's training returns all arrays that it got, by their names."
            )
        return [arrays[name] for name in self.names]

    def named(self, arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Arrays in the layout's order by their names; "0", "1", ... for those of a list."""
        names = self.names or map(str, range(len(self._arrays)))
        return dict(zip(names, arrays, strict=True))

    def restore(self, parameters: Vector, statistics: Vector) -> list[NDArray[Any]]:
        """The list of arrays in their own shapes and dtypes; those of whole numbers as they were at first."""
        arrays = [array.copy() for array in self._arrays]
        for values, positions in ((parameters, self.parameters), (statistics, self.statistics)):
            start = 0
            for position in positions:
                like = self._arrays[position]
                arrays[position] = values[start : start + like.size].reshape(like.shape).astype(like.dtype)
                start += like.size
        return arrays

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all arrays."""
        return [array.shape for array in self._arrays]

    def initial(self) -> tuple[Vector, Vector]:
        """The initial model, flat."""
        return self.flatten(self._arrays)

    @staticmethod
    def _joined(arrays: Sequence[NDArray[Any]], positions: Sequence[int]) -> Vector:
        parts = [np.asarray(arrays[position], np.float32).ravel() for position in positions]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _is_float(array: NDArray[Any]) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def _ends(array: NDArray[Any]) -> tuple[int, int]:
    """Numbers of outputs that an array of weights can have: its first axis (PyTorch), or its last (Keras)."""
    return array.shape[0], array.shape[-1]
