"""Rounded values on the wire: 16, 8 or 4 bits each, in blocks that share a norm.

Entry i of a block whose largest magnitude is n is n l_i / s. With 16 bits the level l_i is a float16 in [-1, 1]
and s = 1; with 8 and 4 bits it is a whole number in [-s, s] and s = 127 and 7. Every value is divided by its
block's norm first, so that no width overflows, and the largest value of each block is exact.

The section of the payload has ceil(count / 256) norms, float32, and then the levels: little-endian float16, int8, or 4
bits in two's complement. Two levels of 4 bits share a byte, the first one in its low half; with an odd count, the last
byte's high half is zero.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.bits import WireError, bytes_of
from fedsel_app.wire.values import refuse_norms

BLOCK = 256
"""Number of entries that share a norm. A norm adds an eighth of a bit to each of its entries."""
LEVELS = {16: 1, 8: 127, 4: 7}
"""Bits of a value -> s, its largest level."""
_NORM_BYTES = 4
_HALF_ONE = 0x3C00


@dataclass(frozen=True, eq=False)
class Rounded:
    """Values of few bits: entry i is norms[i // BLOCK] levels[i] / s.

    Attributes
    ----------
    bits : bits of each level: 16, 8 or 4
    norms : float32 (ceil(count / BLOCK),), finite and not negative
    levels : (count,): float16 within [-1, 1] if `bits` is 16, else int8 within [-s, s]
    """

    bits: int
    norms: NDArray[np.float32]
    levels: NDArray[np.float16] | NDArray[np.int8]

    def values(self) -> NDArray[np.float32]:
        """The values, float32 (count,), with the same bits on every machine."""
        shares = self.levels.astype(np.float32)
        shares /= np.float32(LEVELS[self.bits])
        shares *= np.repeat(self.norms, BLOCK)[: shares.size]
        return shares

    def bits_of_values(self) -> int:
        """Bits of the values as papers count them: 32 for each value sent, although it is rounded to fewer."""
        return 32 * self.levels.size


def round_values(values: NDArray[np.float32], bits: int, rng: np.random.Generator | None = None) -> Rounded:
    """Round each float32 value to `bits`, 16, 8 or 4, in blocks of `BLOCK` consecutive values.

    Without `rng` a value is rounded to the nearest level: a contraction, because a value changes by at most its
    magnitude, and the largest value of each block does not change. With `rng` a value is rounded at random to one of
    its neighbours, without bias. With 16 bits it is always rounded to the nearest level; the error is at most 2^-11 of
    the value or 2^-25 of the block's largest value.
    """
    rows = np.zeros((_blocks(values.size), BLOCK), np.float32)
    rows.ravel()[: values.size] = values
    norms = np.abs(rows).max(axis=1)
    # Values that are not finite stay so, and `encode_values` refuses them.
    with np.errstate(invalid="ignore"):
        np.divide(rows, norms[:, None], out=rows, where=norms[:, None] > 0)
        if bits == 16:
            levels = rows.astype(np.float16)
        else:
            rows *= np.float32(LEVELS[bits])
            whole = np.rint(rows) if rng is None else np.floor(rows)
            if rng is not None:
                whole += rng.random(rows.shape, np.float32) < rows - whole
            levels = whole.astype(np.int8)
    return Rounded(bits, norms, levels.ravel()[: values.size])


def bits_an_entry(value_bits: int) -> float:
    """Bits of one value on the wire, with its share of the norm; values of 32 bits have no norm."""
    return value_bits + 8 * _NORM_BYTES / BLOCK if value_bits in LEVELS else float(value_bits)


def section_bytes(count: int, bits: int) -> int:
    """Bytes that `count` rounded values take."""
    return _NORM_BYTES * _blocks(count) + bytes_of(count * bits)


def encode_values(rounded: Rounded) -> bytes:
    """Encode the section of rounded values.

    Raises WireError if `rounded` violates the description of its class.
    """
    levels = rounded.levels
    if levels.dtype != (np.float16 if rounded.bits == 16 else np.int8):
        raise WireError(f"Rounded values of {rounded.bits} bits cannot have levels of {levels.dtype}.")
    _refuse_unsound(rounded)
    norms = rounded.norms.astype("<f4", copy=False).tobytes()
    if rounded.bits == 16:
        return norms + levels.astype("<f2", copy=False).tobytes()
    if rounded.bits == 8:
        return norms + levels.tobytes()
    pairs = np.zeros(levels.size + levels.size % 2, np.uint8)
    pairs[: levels.size] = levels.view(np.uint8) & 15
    return norms + (pairs[::2] | pairs[1::2] << 4).tobytes()


def decode_values(section: memoryview, count: int, bits: int) -> Rounded:
    """Decode the `count` values of a section of ``section_bytes(count, bits)``. Raises WireError if it is not valid."""
    norms = np.frombuffer(section, "<f4", _blocks(count)).astype(np.float32)
    stored = section[norms.nbytes :]
    levels: NDArray[Any]
    if bits == 16:
        levels = np.frombuffer(stored, "<f2").astype(np.float16)
    elif bits == 8:
        levels = np.frombuffer(stored, np.int8)
    else:
        pairs = np.frombuffer(stored, np.uint8)
        if count % 2 and pairs[-1] >> 4:
            raise WireError("The payload's padding bits are not zero.")
        # Flipping the sign bit and then subtracting it extends two's complement from 4 bits to 8.
        halves = np.stack((pairs & 15, pairs >> 4), axis=1).ravel()[:count]
        levels = (halves ^ 8).view(np.int8) - np.int8(8)
    rounded = Rounded(bits, norms, levels)
    _refuse_unsound(rounded)
    return rounded


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _refuse_unsound(rounded: Rounded) -> None:
    levels, s = rounded.levels, LEVELS[rounded.bits]
    refuse_norms(rounded.norms, _blocks(levels.size), "rounded")
    # Of positive float16, the larger number has the larger bits, and NaN has the largest.
    beyond = levels.view(np.uint16) & 0x7FFF > _HALF_ONE if rounded.bits == 16 else (levels < -s) | (levels > s)
    if beyond.any():
        raise WireError(f"A level of rounded values is not within [-{s}, {s}].")
