"""Ring: values as whole multiples of a round's grid, whose sums over all clients stay in a ring of few bits.

All clients of a round share a grid, the multiples of 2^g. A client sends its values as multiples of at most
Q = floor((2^(b-1) - 1) / n), where n is the greatest number of clients in the sum. So a sum of at most n terms stays in
the ring of b bits, and the sum of integers has the same bits in any order.

The grid of a round follows from the round before: each client states the exponent e of its largest value, as a vector
with a single 1, and the second largest exponent in the sum of these vectors counts (`next_exponent`). One client cannot
raise it by a lie, and the sum tells nobody the exponent of a single client. Then g = e - max(floor(log2 Q), `FINEST`):
2^e is at most Q multiples, or 32 if Q is smaller, so that a ring of few bits clips some values and does not round most
of them to 0.

Layout of a section of multiples, with all numbers little-endian::

    offset  bytes  what
         0      1  place of the exponent e of the client's largest value, e - `LOWEST`
         1      2  g, a signed integer
         3      .  the multiples modulo 2^b, in b bits each, from the lowest bit; unused bits of the last byte are zero
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.bits import WireError

Integers = NDArray[np.int32]
Words = NDArray[np.uint32]
RINGS = (6, 8, 16, 24, 32)
"""Bits of the rings."""
LOWEST, PLACES = -63, 128
"""Lowest exponent of a largest value, and the number of exponents that are told apart."""
FINEST = 5
"""A value of 2^e is at least 2^`FINEST` multiples, also where the ring has room for fewer."""
_HEAD = struct.Struct("<Bh")


def largest(bits: int, clients: int) -> int:
    """Q, the largest multiple with which the sum of this number of clients stays in the ring of `bits`."""
    return ((1 << (bits - 1)) - 1) // clients


def exponent_of(values: NDArray[Any]) -> int:
    """The lowest exponent e, within its bounds, with all |values| below 2^e."""
    most = float(np.abs(values).max(initial=0.0))
    exponent = int(np.frexp(most)[1]) if most else LOWEST
    return min(max(exponent, LOWEST), LOWEST + PLACES - 1)


def one_hot(exponent: int) -> NDArray[np.int64]:
    """The vector with a single 1, at the place of the `exponent`, int64 (PLACES,)."""
    hot: NDArray[np.int64] = (np.arange(LOWEST, LOWEST + PLACES) == exponent).astype(np.int64)
    return hot


def next_exponent(counts: NDArray[np.int64], before: int, clients: int) -> int:
    """The exponent of the next round: the second largest in the sum `counts` of vectors of `one_hot`.

    `before` is that of the round, which stays if only one of its several `clients` replied, or nobody did.
    """
    exponents = np.repeat(np.arange(LOWEST, LOWEST + PLACES), counts)
    return before if exponents.size < min(2, clients) else int(exponents[-2:][0])


def grid_of(exponent: int, bits: int, clients: int) -> int:
    """g: with Q multiples of 2^g a client reaches 2^exponent, if Q is at least 2^`FINEST`."""
    return exponent - max(largest(bits, clients).bit_length() - 1, FINEST)


def quantise(values: NDArray[Any], grid: int, bits: int, clients: int) -> tuple[Integers, NDArray[Any]]:
    """The nearest multiples of 2^grid within [-Q, Q], and what remains of the values, as float32 or float64 (n,).

    Raises WireError for a value that is not finite.
    """
    exact = values.astype(np.float64)
    if not np.isfinite(exact).all():
        raise WireError("An update holds a value that is not finite; did its training diverge?")
    most = largest(bits, clients)
    integers = np.clip(np.rint(np.ldexp(exact, -grid)), -most, most).astype(np.int32)
    return integers, (exact - np.ldexp(integers.astype(np.float64), grid)).astype(values.dtype)


def to_ring(integers: NDArray[Any], bits: int) -> Words:
    """The integers modulo 2^bits."""
    return (integers.astype(np.int64) & ((1 << bits) - 1)).astype(np.uint32)


def from_ring(words: NDArray[Any], bits: int) -> Integers:
    """The integers of [-2^(bits-1), 2^(bits-1)) that are equal to the words modulo 2^bits."""
    half = 1 << (bits - 1)
    return (((words.astype(np.int64) + half) & ((1 << bits) - 1)) - half).astype(np.int32)


def words_as_bytes(words: Words, bits: int) -> bytes:
    """The words in so many bits each, from the lowest bit."""
    stored = words.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : -(-bits // 8)]
    if bits % 8:
        stored = np.packbits(np.unpackbits(stored, axis=1, count=bits, bitorder="little"), bitorder="little")
    return stored.tobytes()


def words_of_bytes(stored: bytes | memoryview, bits: int, count: int) -> Words:
    """The `count` words that `words_as_bytes` wrote. Raises WireError for another number of bytes."""
    if len(stored) != bytes_of_words(count, bits):
        raise WireError(f"{len(stored)} bytes are not {count} words of {bits} bits.")
    in_bytes, words = np.frombuffer(stored, np.uint8), np.zeros((count, 4), np.uint8)
    if bits % 8:
        in_bits = np.unpackbits(in_bytes, count=count * bits, bitorder="little").reshape(count, bits)
        in_bytes = np.packbits(in_bits, axis=1, bitorder="little")
    words[:, : -(-bits // 8)] = in_bytes.reshape(count, -(-bits // 8))
    return words.view("<u4").astype(np.uint32).ravel()


def bytes_of_words(count: int, bits: int) -> int:
    """Bytes of `count` words of so many bits."""
    return -(-count * bits // 8)


@dataclass(frozen=True, eq=False)
class Multiples:
    """Values as multiples of a grid: entry i is integers[i] 2^grid.

    Attributes
    ----------
    bits : bits of the ring
    grid : exponent g of the grid
    exponent : exponent e of the client's largest value, before it was rounded and clipped
    integers : int32 (count,)
    """

    bits: int
    grid: int
    exponent: int
    integers: Integers

    def values(self) -> NDArray[Any]:
        """The values, exactly: float32 (count,), or float64 for a ring of 32 bits."""
        exact = np.ldexp(self.integers.astype(np.float64), self.grid)
        return exact if self.bits == max(RINGS) else exact.astype(np.float32)

    def bits_of_values(self) -> int:
        """Bits of the values: those of the ring for each."""
        return self.bits * self.integers.size


def section_bytes(count: int, bits: int) -> int:
    """Bytes of the section of `count` multiples."""
    return _HEAD.size + bytes_of_words(count, bits)


def encode_multiples(multiples: Multiples) -> bytes:
    """Encode the section of multiples."""
    head = _HEAD.pack(multiples.exponent - LOWEST, multiples.grid)
    return head + words_as_bytes(to_ring(multiples.integers, multiples.bits), multiples.bits)


def decode_multiples(section: memoryview, count: int, bits: int) -> Multiples:
    """Decode the section of `count` multiples. Raises WireError if it is not valid."""
    if len(section) != section_bytes(count, bits):
        raise WireError(f"{count} multiples take {section_bytes(count, bits)} bytes. Got {len(section)}.")
    place, grid = _HEAD.unpack_from(section)
    if place >= PLACES or not LOWEST - max(RINGS) <= grid < LOWEST + PLACES:
        raise WireError("The payload's multiples have an exponent beyond those of any update.")
    return Multiples(bits, grid, LOWEST + place, from_ring(words_of_bytes(section[_HEAD.size :], bits, count), bits))
