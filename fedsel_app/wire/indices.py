"""Index coding of a sparse update: Rice-coded gaps, or a check sum of seeded indices.

Rice coding (R. F. Rice, "Some Practical Universal Noiseless Coding Techniques", JPL Publication 79-22, 1979) codes each
gap g, the number of entries skipped before a sent one. It splits g into q = g >> b, written as q zeros and a one, and
the b low bits of g. The first stream has all unary codes. The second stream has the low bits as b planes of `count`
bits, lowest plane first. With this order, encoding and decoding take only a few operations on whole arrays. With b = 0
the first stream is a bitmap up to the last entry: bit i is set if entry i is sent.

Seeded indices are not sent: both sides draw them from (seed, round, client). The payload has only four bytes, the
CRC-32 of the indices as little-endian uint32, to check that both sides drew the same.
"""

import math
import zlib

import numpy as np
from numpy.typing import NDArray

from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.bits import WireError, bytes_of, pack, unpack

DENSE, RICE, SEEDED = range(3)
_LARGEST_U32 = 2**32 - 1


def kept_count(fraction: float, size: int, *, down: bool = False) -> int:
    """Kept count kappa, the number of entries to keep: ceil(theta N), or if `down` max(1, floor(theta N)).

    The product is rounded to six decimals first, so that 0.07 of 100 is 7 and not 8.

    Raises ValueError if `fraction` is not in (0, 1].
    """
    if not 0.0 < fraction <= 1.0:
        raise ValueError(f"The kept fraction must be in (0, 1]. Got {fraction!r}.")
    product = round(fraction * size, 6)
    return max(1, math.floor(product) if down else math.ceil(product))


def seeded_indices(seed: int, server_round: int, client: int, size: int, count: int) -> NDArray[np.uint32]:
    """Seeded indices: `count` of `size` positions in increasing order, uniform without replacement."""
    drawn = stream(seed, Purpose.COMPRESS, server_round, client).choice(size, count, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.uint32)


def encode_indices(indices: NDArray[np.uint32] | None, *, seeded: bool) -> tuple[int, int, bytes]:
    """Encode indices in the fewest bytes; with `seeded` encode only their check sum.

    Returns the coding's number, its Rice parameter and its bytes.
    """
    if indices is None:
        return DENSE, 0, b""
    if seeded:
        return SEEDED, 0, _check_sum(indices)
    gaps = indices.copy()
    gaps[1:] -= indices[:-1] + np.uint32(1)
    rice_bits, unary_bits = _best_rice(gaps)
    unary = np.zeros(unary_bits, np.bool_)
    unary[np.cumsum((gaps >> rice_bits) + np.uint32(1), dtype=np.int64) - 1] = True
    planes = np.empty((rice_bits, indices.size), np.bool_)
    for bit, plane in enumerate(planes):
        np.not_equal(gaps & np.uint32(1 << bit), 0, out=plane)
    return RICE, rice_bits, pack(unary) + pack(planes.ravel())


def decode_indices(
    stored: NDArray[np.uint8], coding: int, rice_bits: int, size: int, drawn: tuple[int | None, int, int, int]
) -> NDArray[np.uint32] | None:
    """Decode the indices in the bytes `stored`; None for a dense update.

    Raises WireError if `stored` is not a valid coding of `count` indices below `size`.

    Parameters
    ----------
    stored : all the bytes of the indices
    coding, rice_bits, size : as the payload's header says
    drawn : the run's seed (None: unknown), then round, client and count from the header; the count is at most `size`
    """
    count = drawn[-1]
    if coding not in (DENSE, RICE, SEEDED):
        raise WireError(f"The payload's indices have the unknown coding {coding}.")
    if rice_bits > (31 if coding == RICE else 0):
        raise WireError(f"The payload's Rice parameter is {rice_bits}, which its index coding does not allow.")
    if coding == RICE:
        return _decode_rice(stored, rice_bits, size, count)
    expected = {DENSE: 0, SEEDED: 4}[coding]
    if len(stored) != expected:
        raise WireError(f"The payload has {len(stored)} bytes of indices where it must have {expected}.")
    if coding == SEEDED:
        return _decode_seeded(stored, size, drawn)
    if count != size:
        raise WireError(f"The payload is dense, and has {count} of {size} values.")
    return None


def _decode_seeded(stored: NDArray[np.uint8], size: int, drawn: tuple[int | None, int, int, int]) -> NDArray[np.uint32]:
    seed, server_round, client, count = drawn
    if seed is None:
        raise WireError("The payload has a check sum instead of its indices, but this reader does not know the 'seed'.")
    indices = seeded_indices(seed, server_round, client, size, count)
    if _check_sum(indices) != stored.tobytes():
        raise WireError("The payload has other indices than the server: both need the same 'seed' and numpy release.")
    return indices


def _check_sum(indices: NDArray[np.uint32]) -> bytes:
    return zlib.crc32(indices.astype("<u4", copy=False).tobytes()).to_bytes(4, "little")


def _best_rice(gaps: NDArray[np.uint32]) -> tuple[int, int]:
    """Shortest Rice coding: its parameter b, and its number of unary bits."""
    count = len(gaps)
    best = (_LARGEST_U32, 0, 0)
    for b in range(32):
        low_bytes = bytes_of(b * count)
        if bytes_of(count) + low_bytes >= best[0]:  # neither this b nor a larger one can win
            break
        unary_bits = count + int((gaps >> b).sum(dtype=np.uint64))
        best = min(best, (bytes_of(unary_bits) + low_bytes, b, unary_bits))
    return best[1:]


def _decode_rice(stored: NDArray[np.uint8], rice_bits: int, size: int, count: int) -> NDArray[np.uint32]:
    # The gaps sum to at most size - count, which bounds the unary stream before anything is unpacked.
    unary_bytes = len(stored) - bytes_of(rice_bits * count)
    if not 0 <= unary_bytes <= bytes_of(count + ((size - count) >> rice_bits)):
        raise WireError(f"The payload has {len(stored)} bytes of indices, which {count} of {size} entries cannot take.")
    if unary_bytes and not stored[unary_bytes - 1]:
        raise WireError("The payload has superfluous bytes after its indices.")
    ends = np.flatnonzero(unpack(stored[:unary_bytes], 8 * unary_bytes))
    if len(ends) != count:
        raise WireError(f"The payload lists {len(ends)} indices, and its header claims {count}.")
    planes = unpack(stored[unary_bytes:], rice_bits * count).reshape(rice_bits, count)
    low_bits = np.zeros(count, np.uint32)
    for bit, plane in enumerate(planes):
        low_bits |= plane.astype(np.uint32) << np.uint32(bit)
    # ends[i] = q_0 + .. + q_i + i, and index i = g_0 + .. + g_i + i, where g = (q << b) + low bits.
    position = np.arange(count)
    indices = ((ends - position) << rice_bits) + np.cumsum(low_bits, dtype=np.int64) + position
    if count and indices[-1] >= size:
        raise WireError(f"The payload has an index of {indices[-1]} in a model of {size} entries.")
    return indices.astype(np.uint32)
