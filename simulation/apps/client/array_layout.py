"""Array layout: converts a model's arrays to flat vectors, the parameters and the running statistics, and back.

A user's Flower client sends its model as named arrays, in PyTorch usually those of `state_dict()`. A round uses two
vectors. Clients compress the parameters, and the server optimizer
updates them. The server averages the running statistics of BatchNorm by examples. Two kinds of arrays are in neither
vector and keep their values in the initial model: whole numbers or truth values (BatchNorm's `num_batches_tracked`),
and floats with an infinity (a causal mask) or a NaN (a placeholder).
"""

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.wire.codec import WireError

Vector = NDArray[np.float32]
Arrays = Sequence[NDArray[Any]]
"""A model's arrays, in its order."""
MEAN, VARIANCE = "running_mean", "running_var"
"""Names of BatchNorm's running statistics in PyTorch's state_dict, after the last dot."""


def running_statistics(names: Sequence[str], arrays: Sequence[NDArray[Any]]) -> list[tuple[int, int]]:
    """Positions of each running mean and its variance, as PyTorch's state_dict names or orders them.

    A pair has names with the same prefix. With numbers for names, it is two float vectors of equal length before a
    single whole number (`num_batches_tracked`).
    """
    if not all(name.isdecimal() for name in names):
        at = {name: position for position, name in enumerate(names)}
        prefixes = [name.removesuffix(MEAN) for name in names if name.split(".")[-1] == MEAN]
        return [(at[prefix + MEAN], at[prefix + VARIANCE]) for prefix in prefixes if prefix + VARIANCE in at]
    pairs: list[tuple[int, int]] = []
    for position in range(2, len(arrays)):
        mean, variance, count = arrays[position - 2 : position + 1]
        alike = mean.ndim == 1 and mean.shape == variance.shape and _is_float(mean) and _is_float(variance)
        if alike and count.shape == () and np.issubdtype(count.dtype, np.integer):
            pairs.append((position - 2, position - 1))
    return pairs


class ArrayLayout:
    """Layout of a model's arrays.

    Raises ConfigError if an array holds anything but real numbers and truth values, if a position has no float array,
    or if no array is left to train.

    Parameters
    ----------
    arrays : the initial model, by name. Finite float arrays become float32 in the vectors, or float64 if one of them is
        float64. All others keep their initial values.
    statistics : positions of the running statistics; None: found by `running_statistics`

    Attributes
    ----------
    names : tuple of str, names of the arrays, in their order
    parameters, statistics : tuple of int, positions of the arrays of each kind
    variances : bool (B,), True for the entries of the running variances, as far as names or the order of the arrays
        tell them
    size : int, number of parameters N
    layers : tuple of LayerSlice, which tile [0, size). A matrix (or kernel) and the next vector form a layer if the
        vector has one entry for each output. Every other array is a layer of its own.
    classes : int, number of outputs of the last layer
    has_class_biases : bool, True if the last layer has a vector with one entry for each output
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], statistics: Collection[int] | None = None) -> None:
        self.names = tuple(arrays)
        self._arrays = [np.array(array) for array in arrays.values()]
        if odd := [at for at, array in enumerate(self._arrays) if array.dtype.kind not in "biuf" or array.itemsize > 8]:
            raise ConfigError(
                "The model's arrays must hold real numbers or truth values, of at most 8 bytes each; the array at "
                f"position {odd[0]} has the dtype {self._arrays[odd[0]].dtype}."
            )
        floats = [at for at, array in enumerate(self._arrays) if _is_float(array) and np.isfinite(array).all()]
        pairs = running_statistics(self.names, self._arrays)
        named = [position for pair in pairs for position in pair]
        self.statistics = tuple(sorted({*(named if statistics is None else statistics)}))
        if wrong := [position for position in self.statistics if position not in floats]:
            raise ConfigError(f"The running statistics must be float arrays; position {wrong[0]} has no float array.")
        variances = np.isin(self.statistics, [variance for _, variance in pairs])
        self.variances = np.repeat(variances, [self._arrays[position].size for position in self.statistics])
        self.parameters = tuple(position for position in floats if position not in self.statistics)
        if not self.parameters:
            raise ConfigError(
                "Give a model with arrays of finite floats: fedsel averages their updates. It cannot combine bytes, "
                "such as the trees of XGBoost."
            )
        trained = (self._arrays[position].dtype for position in (*self.parameters, *self.statistics))
        self._dtype = np.result_type(np.float32, *trained)
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

    def __str__(self) -> str:
        """Number of the arrays, and a checksum of their names, shapes and dtypes."""
        arrays = self._arrays
        kinds = [self.names, [array.shape for array in arrays], [array.dtype.str for array in arrays]]
        return f"{len(self._arrays)} arrays, {zlib.crc32(json.dumps(kinds).encode()):08x}"

    def refuse_tied(self, before: Arrays, after: Arrays) -> None:
        """Raise ValueError if a training has moved equal arrays alike, as if they were one tensor."""
        moved = [at for at in self.parameters if not np.array_equal(before[at], after[at])]
        if tied := [part for group in twins(before, moved) for part in twins(after, group)]:
            raise ValueError(
                f"Send one of the arrays {', '.join(self.names[at] for at in tied[0])}, and tie the others to it in "
                "the client: they are one tensor, and compression or noise would move them apart."
            )

    def _members(self) -> list[list[int]]:
        """Positions of each layer's arrays."""
        layers: list[list[int]] = []
        for position in self.parameters:
            array = self._arrays[position]
            before = layers[-1] if layers else []
            joins = len(before) == 1 and before[0] == position - 1 and array.ndim == 1
            weights = self._arrays[before[0]].shape if joins else ()
            # The outputs of an array of weights are its first axis (PyTorch), or its last (Keras).
            if weights and len(array) in {weights[0], weights[-1]}:
                before.append(position)
            else:
                layers.append([position])
        return layers

    def flatten(self, arrays: Arrays) -> tuple[Vector, Vector]:
        """The parameters (N,), and the running statistics (B,), in float32 or float64.

        Raises ValueError if the shapes of the arrays differ from those of the initial model.
        """
        shapes, expected = [array.shape for array in arrays], [array.shape for array in self._arrays]
        if odd := [at for at, shape in enumerate(shapes) if shape != expected[at]]:
            raise ValueError(
                f"A client's training must return all arrays in the shapes that it received: of {len(odd)} arrays with "
                f"others, the first, {self.names[odd[0]]}, has {shapes[odd[0]]} in place of {expected[odd[0]]}."
            )
        return self._joined(arrays, self.parameters), self._joined(arrays, self.statistics)

    def in_order(self, arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """A client's arrays in the model's order. Raises WireError if they have other names."""
        return [arrays[name] for name in in_order(arrays, self.names)]

    def restore(self, parameters: Vector, statistics: Vector) -> list[NDArray[Any]]:
        """The list of arrays in their own shapes and dtypes; arrays that are not floats have their initial values."""
        arrays = [array.copy() for array in self._arrays]
        for values, positions in ((parameters, self.parameters), (statistics, self.statistics)):
            start = 0
            for position in positions:
                like = self._arrays[position]
                arrays[position] = values[start : start + like.size].reshape(like.shape).astype(like.dtype)
                start += like.size
        return arrays

    def initial(self) -> tuple[Vector, Vector]:
        """The initial model, flat."""
        return self.flatten(self._arrays)

    def _joined(self, arrays: Sequence[NDArray[Any]], positions: Sequence[int]) -> Vector:
        parts = [np.asarray(arrays[position], self._dtype).ravel() for position in positions]
        return np.concatenate(parts) if parts else np.zeros(0, self._dtype)


def in_order(named: Collection[str], names: Sequence[str]) -> Sequence[str]:
    """The `names` of the model's arrays. Raises WireError if the `named` arrays of a client have other names."""
    if odd := set(named) ^ set(names):
        missing, foreign = sorted(odd & set(names)), sorted(odd - set(names))
        raise WireError(
            "A client's training must return all arrays that it received, by their names: "
            f"{len(missing)} of the model's {len(names)} arrays are missing ({', '.join(missing[:3])}), and "
            f"{len(foreign)} that came are not the model's ({', '.join(foreign[:3])})."
        )
    return names


def twins(arrays: Sequence[NDArray[Any]], among: Iterable[int]) -> list[list[int]]:
    """Groups of the positions `among` which arrays have the same type, shape and values, of two or more positions."""
    alike: dict[object, list[list[int]]] = {}
    for position in among:
        array = arrays[position]
        groups = alike.setdefault((array.dtype, array.shape, array.ravel()[:16].tobytes()), [])
        same = next((group for group in groups if np.array_equal(arrays[group[0]], array)), None)
        if same is not None:
            same.append(position)
        elif array.size:
            groups.append([position])
    return [group for groups in alike.values() for group in groups if len(group) > 1]


def _is_float(array: NDArray[Any]) -> bool:
    return np.issubdtype(array.dtype, np.floating)
