"""Quantised values on the wire: norms by bucket, and whole levels in a run-length gamma code.

D. Alistarh, D. Grubic, J. Li, R. Tomioka, M. Vojnovic: "QSGD: Communication-Efficient SGD via Gradient
Quantization and Encoding", NeurIPS 2017, arXiv 1610.02132: entry i of a bucket of norm n is n z_i / s, with a
whole level z_i in [-s, s].

Layout of the section of quantised values in the payload, with all numbers little-endian::

    offset  bytes  what
         0      4  number of bytes of indices, which follow this head
         4      4  bucket, the entries that share a norm: 1 .. max(count, 1)
         8      4  s, the levels: 1 .. 32767
        12      4  z, the number of levels that are not zero
        16      .  the indices
         .      .  ceil(count / bucket) norms, float32
         .      .  the levels: a bit string

A nonzero level has three codes: the Elias gamma code of 1 + the number of zeros before it, a sign bit, and the gamma
code of its magnitude, as in TensorFlow Federated's coder. Zeros after the last nonzero level are not coded. The gamma
code of k is n zeros, a one, and the n low bits of k, where n = floor(log2 k).

The bits have the following order, with which encoding and decoding take only a few operations on whole arrays: the
zeros and ones of all runs, then those of all magnitudes; the signs; then the low bits of runs and magnitudes as planes,
lowest bit first. A plane has only the codes that are long enough to have its bit.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.bits import WireError, bytes_of, pack, unpack

HEAD = struct.Struct("<IIII")
MOST_LEVELS = 2**15 - 1
_NORM_BYTES = 4
_LONGEST_CODE = 31


@dataclass(frozen=True, eq=False)
class Quantised:
    """Values on a grid: entry i is norms[i // bucket] levels[i] / s.

    Attributes
    ----------
    norms : float32 (ceil(count / bucket),), finite and not negative
    levels : int16 (count,), within [-s, s]
    bucket : entries that share a norm, 1 .. max(count, 1)
    s : largest level, 1 .. 32767
    """

    norms: NDArray[np.float32]
    levels: NDArray[np.int16]
    bucket: int
    s: int

    def values(self) -> NDArray[np.float32]:
        """The values, float32 (count,), with the same bits on every machine."""
        shares = self.levels.astype(np.float32) / np.float32(self.s)
        return shares * np.repeat(self.norms, self.bucket)[: self.levels.size]

    def bits_of_values(self) -> int:
        """Bits of the values in the papers' fixed width: 32 per bucket, and a sign and ceil(log2(s + 1)) per entry."""
        return 32 * self.norms.size + self.levels.size * (1 + self.s.bit_length())


def encode_values(quantised: Quantised, places: bytes) -> bytes:
    """Encode the section of quantised values, which includes the coded indices `places`.

    Raises WireError if `quantised` violates the description of its class.
    """
    norms, levels, bucket, s = quantised.norms, quantised.levels, quantised.bucket, quantised.s
    _refuse_grid(levels.size, bucket, s)
    refuse_norms(norms, -(-levels.size // bucket), "quantised")
    if levels.size and np.abs(levels.astype(np.int32)).max() > s:
        raise WireError(f"A level must be within [-{s}, {s}].")
    coded, nonzero = _encode_levels(levels)
    return HEAD.pack(len(places), bucket, s, nonzero) + places + norms.astype("<f4", copy=False).tobytes() + coded


def index_bytes(section: memoryview) -> int:
    """Bytes of indices in a section of quantised values. Raises WireError if the section is too short for them."""
    if len(section) < HEAD.size:
        raise WireError("The payload is too short for quantised values.")
    claimed: int = HEAD.unpack_from(section)[0]
    if claimed > len(section) - HEAD.size:
        raise WireError(f"The payload is too short for {claimed} bytes of indices before its quantised values.")
    return claimed


def decode_values(section: memoryview, count: int) -> Quantised:
    """Decode the `count` quantised values of a section. Raises WireError if it is not valid."""
    skipped = HEAD.size + index_bytes(section)
    _, bucket, s, nonzero = HEAD.unpack_from(section)
    _refuse_grid(count, bucket, s)
    buckets = -(-count // bucket)
    if len(section) - skipped < _NORM_BYTES * buckets:
        raise WireError(f"The payload is too short for the {buckets} norms of its quantised values.")
    norms = np.frombuffer(section, "<f4", buckets, skipped).astype(np.float32)
    refuse_norms(norms, buckets, "quantised")
    stored = np.frombuffer(section, np.uint8, offset=skipped + _NORM_BYTES * buckets)
    return Quantised(norms, _decode_levels(stored, nonzero, count, s), bucket, s)


def _refuse_grid(count: int, bucket: int, s: int) -> None:
    if not 1 <= bucket <= max(count, 1):
        raise WireError(
            f"Quantised values have buckets of 1 to {max(count, 1)} of their {count} entries. Got {bucket}."
        )
    if not 1 <= s <= MOST_LEVELS:
        raise WireError(f"Quantised values have 1 to {MOST_LEVELS} levels. Got {s}.")


def refuse_norms(norms: NDArray[np.float32], expected: int, kind: str) -> None:
    """Raise WireError if the norms of values of this `kind` are not `expected` finite numbers without a sign."""
    if norms.size != expected:
        raise WireError(f"These {kind} values have {expected} norms. Got {norms.size}.")
    if not np.isfinite(norms).all() or np.signbit(norms).any():
        raise WireError(f"A norm of {kind} values is not finite, or negative; did the training diverge?")


def _encode_levels(levels: NDArray[np.int16]) -> tuple[bytes, int]:
    """Encode `levels` as a bit string, and count those that are not zero."""
    places = np.flatnonzero(levels)
    picked = levels[places].astype(np.int64)
    codes = np.concatenate((np.diff(places, prepend=-1), np.abs(picked)))
    lengths = np.frexp(codes.astype(np.float64))[1] - 1
    unary = np.zeros(int(lengths.sum()) + codes.size, np.bool_)
    unary[np.cumsum(lengths + 1) - 1] = True
    planes = [(codes[lengths > bit] >> bit) & 1 != 0 for bit in range(int(lengths.max(initial=0)))]
    return pack(np.concatenate((unary, picked < 0, *planes))), places.size


def _decode_levels(stored: NDArray[np.uint8], nonzero: int, count: int, s: int) -> NDArray[np.int16]:
    # A nonzero level takes at least three bits, so the payload's length bounds the arrays below.
    if nonzero > count or 3 * nonzero > 8 * len(stored) or (not nonzero and len(stored)):
        raise WireError(f"The payload has {len(stored)} bytes of levels, which {nonzero} of {count} cannot take.")
    levels = np.zeros(count, np.int16)
    if not nonzero:
        return levels
    bits = unpack(stored, 8 * len(stored))
    ends = np.flatnonzero(bits)[: 2 * nonzero]
    if len(ends) < 2 * nonzero:
        raise WireError(f"The payload lists fewer than the {nonzero} levels that it claims.")
    lengths = np.diff(ends, prepend=-1) - 1
    if lengths.max() > _LONGEST_CODE:
        raise WireError("The payload has a level or a run of zeros that is too long.")
    at = int(ends[-1]) + 1
    end = at + nonzero + int(lengths.sum())
    if bytes_of(end) != len(stored):
        raise WireError(f"The payload's levels take {bytes_of(end)} bytes. Got {len(stored)}.")
    if bits[end:].any():
        raise WireError("The payload's padding bits are not zero.")
    negative = bits[at : at + nonzero]
    at += nonzero
    codes = np.left_shift(np.uint64(1), lengths.astype(np.uint64))
    for bit in range(int(lengths.max())):
        longer = np.flatnonzero(lengths > bit)
        codes[longer] |= bits[at : at + longer.size].astype(np.uint64) << np.uint64(bit)
        at += longer.size
    places = np.cumsum(codes[:nonzero]) - np.uint64(1)
    magnitudes = codes[nonzero:].astype(np.int64)
    if places[-1] >= count or magnitudes.max() > s:
        raise WireError(f"The payload has a level beyond {s}, or beyond its {count} values.")
    levels[places] = np.where(negative, -magnitudes, magnitudes)
    return levels
