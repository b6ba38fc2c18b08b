"""NumPy's format of one array (.npy), in which Flower sends all arrays: the only reader of arrays from other machines.

`numpy.load` evaluates the header as Python, allocates what the header describes before it reads a value, and also opens
zip archives. This reader accepts only the header that `numpy.save` writes, and compares its shape with the bytes first.
"""

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.bits import WireError

START = b"\x93NUMPY\x01\x00"
"""Start of an array in version 1.0 of the format. Two bytes with the length of the header follow."""
HEADER = re.compile(
    rb"\{'descr': '(\|[biu]1|[<>][iu][248]|[<>]f[248])', 'fortran_order': (False|True), "
    rb"'shape': \((|\d{1,18},|\d{1,18}(?:, \d{1,18}){1,63})\), \} *\n"
)
"""Header of an array of real numbers or truth values of at most 8 bytes each: its dtype, order and shape."""


def read_array(tensor: bytes) -> NDArray[Any]:
    """Read an array of real numbers or truth values, of any shape, as a read-only view of its bytes.

    Only numbers in another byte order are copied, into this machine's order.

    Raises WireError if it is not in NumPy's format, has another dtype, or has more or fewer bytes than its shape needs.
    """
    start = len(START) + 2
    stop = start + int.from_bytes(tensor[len(START) : start], "little")
    header = HEADER.fullmatch(tensor, start, stop) if tensor.startswith(START) and stop <= len(tensor) else None
    if header is None:
        raise WireError(
            "it must be an array of real numbers or truth values, of at most 8 bytes each, in NumPy's format; "
            f"{len(tensor)} bytes came, which begin with {tensor[:80]!r}"
        )
    kind = np.dtype(header[1].decode())
    shape = tuple(int(digits) for digits in header[3].replace(b",", b"").split())
    needed = math.prod(shape) * kind.itemsize
    if needed != len(tensor) - stop:
        raise WireError(f"its shape in NumPy's format needs {needed} bytes of values, and {len(tensor) - stop} came")
    try:
        array = np.ndarray(shape, kind, tensor, stop, order="F" if header[2] == b"True" else "C")
    except ValueError as error:  # a dimension of 0 beside huge ones, or more dimensions than this NumPy has
        raise WireError(f"its shape in NumPy's format is impossible ({error})") from error
    return array.astype(kind.newbyteorder("="), copy=False)


def read_named(name: str, tensor: bytes) -> NDArray[Any]:
    """Read an array as `read_array` does; an error begins with the array's `name`."""
    try:
        return read_array(tensor)
    except WireError as error:
        raise WireError(f"{name} cannot be read: {error}") from error
