"""Received arrays: the model in a message to a client is checked before anything is made of it."""

from collections.abc import Mapping

import numpy as np
from flwr.common import NDArrays


def check_arrays(arrays: NDArrays, expected: Mapping[str, int], model: str) -> None:
    """Raise ValueError unless `arrays` are finite float32 vectors, those of `expected`: name -> length."""
    if len(arrays) != len(expected):
        raise ValueError(f"The model '{model}' comes as {' and '.join(expected)}. Got {len(arrays)} arrays.")
    for (name, size), array in zip(expected.items(), arrays, strict=True):
        if array.dtype != np.float32 or array.shape != (size,):
            raise ValueError(
                f"The {name} of the model '{model}' are float32 ({size},). Got {array.dtype} {array.shape}. "
                "Server and clients must run the same 'model' and 'data'."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"The {name} that the server sent are not all finite: the global model diverged.")
