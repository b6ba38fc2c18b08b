"""Inputs of a model: the samples of a data set as tensors."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Inputs = Tensor | dict[str, Tensor]
"""A tensor (n, ...), or such tensors by name."""


def tensors(samples: NDArray[Any]) -> Inputs:
    """The samples as tensors; a single array shares its memory, unless it is read-only."""
    if names := samples.dtype.names:
        return {name: torch.from_numpy(np.ascontiguousarray(samples[name])) for name in names}
    return torch.from_numpy(np.require(samples, requirements=["C", "W"]))


def mapped(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """The function of the tensor, or of each tensor."""
    return {name: function(tensor) for name, tensor in inputs.items()} if isinstance(inputs, dict) else function(inputs)


def trial_inputs(*parts: NDArray[Any]) -> Inputs:
    """Two inputs on which a model is tried: whole numbers of the samples, otherwise normal numbers, always the same.

    Whole numbers are samples with the smallest and with the largest of them, which a vocabulary must have. Normal
    numbers begin with one below 0: normalised numbers may be so, and a model that looks floats up as tokens raises for
    it. `parts` are those of a data set; some may be empty.
    """
    generator = torch.Generator().manual_seed(0)

    def tried(*columns: NDArray[Any]) -> Tensor:
        first = next(column for column in columns if len(column))[:2]
        if first.dtype == np.int64:
            return torch.from_numpy(_extremes(columns))
        inputs = torch.randn((2, *first.shape[1:]), generator=generator)
        inputs.view(-1)[:1] = -2.0
        return inputs

    names = parts[0].dtype.names
    return {name: tried(*(part[name] for part in parts)) for name in names} if names else tried(*parts)


def _extremes(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """The sample with the smallest entry, and the one with the largest."""
    held = [part for part in parts if len(part)]
    for _ in range(2):  # of each part, and then of these
        flat = [part.reshape(len(part), -1) for part in held]
        rows = [[each.min(axis=1).argmin(), each.max(axis=1).argmax()] for each in flat]
        held = [np.concatenate([part[places] for part, places in zip(held, rows, strict=True)])]
    return held[0]
