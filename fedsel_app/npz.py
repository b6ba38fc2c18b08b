"""Npz files with named plain arrays. A file is read completely or refused, and it never contains a pickle."""

from collections.abc import Container
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

ZIP = b"PK"
"""First bytes of an npz file."""
PLAIN = "biufcSU"
"""Kinds of dtype of a plain array: numbers and text."""


class NpzError(ValueError):
    """Error for a file that is not an npz archive of plain arrays."""


def read_arrays(file: BinaryIO, names: Container[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays `names` of an npz file, or all.

    Raises NpzError if it is damaged, encrypted or pickled, or contains anything except plain arrays.
    """
    if file.read(len(ZIP)) != ZIP:
        raise NpzError("it is not an npz file, which np.savez writes")
    file.seek(0)
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive if names is None or name in names}
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen kinds of exceptions for damaged archives
        if "pickle" in str(error):
            raise NpzError(
                "it contains Python objects. Save numbers or text, not arrays of the dtype object"
            ) from error
        raise NpzError(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind not in PLAIN:
            raise NpzError(f"'{name}' is not a plain array")
    return arrays
