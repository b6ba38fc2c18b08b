"""Inputs of a model: the samples of a data set as tensors."""

from collections.abc import Callable
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


def trial_inputs(samples: NDArray[Any]) -> Inputs:
    """Two inputs on which a model is tried: whole numbers of the samples, otherwise normal numbers, always the same.

    Whole numbers may be tokens, also as floats.
    """
    generator = torch.Generator().manual_seed(0)

    def tried(column: Tensor) -> Tensor:
        whole = column.dtype == torch.float32 and bool(((column >= 0) & (column % 1 == 0)).all())
        if column.dtype == torch.int64 or whole:
            return column
        return torch.randn(column.shape, generator=generator)

    return mapped(tried, tensors(samples[[0, min(1, len(samples) - 1)]]))
