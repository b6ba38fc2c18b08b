"""Bit strings in bytes: each byte is filled from its lowest bit, and the rest of the last byte is zero."""

import numpy as np
from numpy.typing import NDArray


class WireError(ValueError):
    """A payload that cannot be trusted, or an update that cannot be sent; the message says why."""


def bytes_of(bits: int) -> int:
    """Number of bytes for `bits` bits."""
    return (bits + 7) // 8


def pack(bits: NDArray[np.bool_]) -> bytes:
    """Pack the bits (n,) into ceil(n / 8) bytes."""
    return np.packbits(bits, bitorder="little").tobytes()


def unpack(stored: NDArray[np.uint8], bits: int) -> NDArray[np.bool_]:
    """Unpack the first `bits` bits of `stored`, which has just enough bytes for them.

    Raises WireError if the last byte's other bits are not zero.
    """
    if bits % 8 and stored[-1] >> (bits % 8):
        raise WireError("The payload's padding bits are not zero.")
    return np.unpackbits(stored, count=bits, bitorder="little").view(np.bool_)
