"""The arrays of a message, checked before anything is made of them."""

from collections.abc import Mapping

import numpy as np
from flwr.common import NDArrays


def check(arrays: NDArrays, expected: Mapping[str, int], model: str) -> None:
    """Raise ValueError unless `arrays` are finite float32 vectors, those of `expected`: what each is -> its length."""
    if len(arrays) != len(expected):
        raise ValueError(f"The model '{model}' comes as {' and '.join(expected)}. Got {len(arrays)} arrays.")
    for (what, size), array in zip(expected.items(), arrays, strict=True):
        if array.dtype != np.float32 or array.shape != (size,):
            raise ValueError(
                f"The {what} of the model '{model}' are float32 ({size},). Got {array.dtype} {array.shape}. "
                "Server and clients must run the same 'model' and 'data'."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"The {what} that the server sent are not all finite: the global model diverged.")
