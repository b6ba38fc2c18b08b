"""The update codec: a sparse or dense model update as bytes, exactly, and back without trusting them.

A payload is, all numbers little-endian::

    offset  bytes  what
         0      4  magic "FSEL"
         4      1  version, 1
         5      1  value coding: 1 float32; 2 float16 and 3 quantised are reserved, and refused
         6      1  index coding: 0 dense, 1 bitmap, 2 Rice-coded gaps
         7      1  Rice parameter b, 0..31; 0 in the other codings
         8      4  size N, the model's entries
        12      4  count, the entries sent
        16      4  client, its partition id
        20      4  round
        24      .  the indices
         .      .  the values, 4 count bytes
         .      4  CRC-32 of all bytes before it

Bit streams fill each byte from its lowest bit; the last byte's unused bits are zero. A dense update
spends nothing on indices. A bitmap has bit i set where entry i is sent. Rice coding (R. F. Rice, "Some
Practical Universal Noiseless Coding Techniques", JPL Publication 79-22, 1979) splits each gap g, the
entries skipped before a sent one, into q = g >> b, sent as q zeros and a one, and the b low bits. A first
stream holds all the unary codes, a second one the low bits as b planes of `count` bits, lowest plane
first; so both ways are a few whole-array operations. `encode` takes the shortest coding, over b too.
"""

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_HEADER = struct.Struct("<4sBBBBIIII")
_CRC = struct.Struct("<I")
_OVERHEAD_BYTES = _HEADER.size + _CRC.size
_VALUE_BYTES = 4
_MAGIC, _VERSION = b"FSEL", 1
_FLOAT32 = 1
_RESERVED_VALUES = {2: "float16", 3: "quantised"}
_DENSE, _BITMAP, _RICE = range(3)
_LARGEST_U32 = 2**32 - 1


class WireError(ValueError):
    """A payload that cannot be trusted, or an update that cannot be sent; the message says why."""


@dataclass(frozen=True, eq=False)
class Update:
    """A model update of which `count` entries are present and the others are zero.

    Attributes
    ----------
    size
        Entries of the whole model, N.
    indices
        uint32 (count,), strictly increasing and below `size`; None if every entry is present.
    values
        float32 (count,), the entries at `indices`.
    """

    size: int
    indices: NDArray[np.uint32] | None
    values: NDArray[np.float32]

    def __eq__(self, other: object) -> bool:
        """Bit for bit: -0.0 differs from 0.0, and dense from sparse with all entries listed."""
        if not isinstance(other, Update):
            return NotImplemented
        mine, theirs = self.indices, other.indices
        same_places = mine is theirs if mine is None or theirs is None else np.array_equal(mine, theirs)
        return self.size == other.size and same_places and self.values.tobytes() == other.values.tobytes()

    @property
    def count(self) -> int:
        """Entries present."""
        return len(self.values)

    def dense(self) -> NDArray[np.float32]:
        """The update as a new float32 (size,) array."""
        full = np.zeros(self.size, np.float32)
        full[self._places] = self.values
        return full

    def add_to(self, total: NDArray[np.float64], weight: float) -> None:
        """Add ``weight * update`` to `total` in place. Raises ValueError if `total` is not float64 (size,)."""
        if total.dtype != np.float64:
            raise ValueError(f"An update is summed in float64. Got a total of {total.dtype}.")
        self._require_shape(total.shape)
        total[self._places] += weight * self.values.astype(np.float64)

    def dot(self, vector: NDArray[np.floating]) -> float:
        """Inner product with `vector`, in float64. Raises ValueError if `vector` is not of shape (size,)."""
        self._require_shape(vector.shape)
        # Not BLAS: its sum depends on the number of threads, which differs between server and clients.
        return float(np.multiply(self.values, vector[self._places], dtype=np.float64).sum())

    def norm(self) -> float:
        """Euclidean norm, in float64."""
        return float(np.sqrt(np.square(self.values, dtype=np.float64).sum()))

    @property
    def _places(self) -> NDArray[np.uint32] | slice:
        return slice(None) if self.indices is None else self.indices

    def _require_shape(self, shape: tuple[int, ...]) -> None:
        if shape != (self.size,):
            raise ValueError(f"The update has {self.size} entries. Got an array of shape {shape}.")


@dataclass(frozen=True)
class Packet:
    """What one payload says: the update, and the partition id and round it belongs to."""

    update: Update
    client: int
    server_round: int


def paper_bits(update: Update) -> int:
    """The papers' own accounting: 32 bits a value sent, indices free."""
    return 32 * update.count


def index_bits(payload: bytes) -> int:
    """Bits spent on indices in a payload that `encode` made or `decode` accepted."""
    count: int = _HEADER.unpack_from(payload)[6]
    return 8 * (len(payload) - _OVERHEAD_BYTES - _VALUE_BYTES * count)


def encode(update: Update, *, client: int, server_round: int) -> bytes:
    """The payload of `update`, with its indices coded in the fewest bytes.

    Raises
    ------
    WireError
        If `update` is not as its class says, a value is not finite, or a number does not fit 32 bits.
    """
    _refuse_unsendable(update, client, server_round)
    coding, rice_bits, places = _encode_indices(update)
    codings = (_FLOAT32, coding, rice_bits)
    header = _HEADER.pack(_MAGIC, _VERSION, *codings, update.size, update.count, client, server_round)
    body = header + places + update.values.astype("<f4", copy=False).tobytes()
    return body + _CRC.pack(zlib.crc32(body))


def decode(payload: bytes, *, size: int) -> Packet:
    """What `payload` says of a model of `size` entries; ``decode(encode(u)).update == u`` bit for bit.

    Memory use is bounded by the payload's length and `size`, whatever the payload claims.

    Raises
    ------
    WireError
        If `payload` departs from the format in any way, or is not of a model of `size` entries.
    """
    if len(payload) < _OVERHEAD_BYTES:
        raise WireError(f"The payload is cut short: {len(payload)} bytes, and {_OVERHEAD_BYTES} is the least.")
    magic, version, value_coding, coding, *rest = _HEADER.unpack_from(payload)
    rice_bits, told_size, count, client, server_round = rest
    if magic != _MAGIC:
        raise WireError(f"The payload is not an update: it starts with {magic!r}, not {_MAGIC!r}.")
    if version != _VERSION:
        raise WireError(f"The payload is of version {version}; this program reads version {_VERSION}.")
    if _CRC.pack(zlib.crc32(memoryview(payload)[: -_CRC.size])) != payload[-_CRC.size :]:
        raise WireError("The payload is damaged: its CRC-32 does not match.")
    if value_coding != _FLOAT32:
        name = _RESERVED_VALUES.get(value_coding, "unknown")
        raise WireError(f"The payload's values have coding {value_coding} ({name}); only float32 is read so far.")
    if told_size != size:
        raise WireError(f"The payload is of a model of {told_size} entries; this one has {size}.")
    if count > size:
        raise WireError(f"The payload claims {count} of {size} entries.")
    index_bytes = len(payload) - _OVERHEAD_BYTES - _VALUE_BYTES * count
    if index_bytes < 0:
        raise WireError(f"The payload is too short for the {count} values it claims.")
    stored = np.frombuffer(payload, np.uint8, index_bytes, _HEADER.size)
    indices = _decode_indices(stored, coding, rice_bits, size, count)
    values = np.frombuffer(payload, "<f4", count, _HEADER.size + index_bytes).astype(np.float32)
    if not np.isfinite(values).all():
        raise WireError("The payload holds a value that is not finite.")
    return Packet(Update(size, indices, values), client, server_round)


def _refuse_unsendable(update: Update, client: int, server_round: int) -> None:
    if not 1 <= update.size <= _LARGEST_U32:
        raise WireError(f"An update's size must be in [1, {_LARGEST_U32}]. Got {update.size}.")
    for name, number in (("client", client), ("round", server_round)):
        if not 0 <= number <= _LARGEST_U32:
            raise WireError(f"An update's {name} must be in [0, {_LARGEST_U32}]. Got {number}.")
    values, indices = update.values, update.indices
    if values.dtype != np.float32 or values.ndim != 1:
        raise WireError(f"An update's values must be float32 (count,). Got {values.dtype} {values.shape}.")
    if not np.isfinite(values).all():
        raise WireError(f"The update of client {client} holds a value that is not finite; did its training diverge?")
    if indices is None:
        if len(values) != update.size:
            raise WireError(f"A dense update of size {update.size} must have as many values. Got {len(values)}.")
        return
    if indices.dtype != np.uint32 or indices.shape != values.shape:
        raise WireError(f"An update's indices must be uint32 {values.shape}. Got {indices.dtype} {indices.shape}.")
    if not (indices[1:] > indices[:-1]).all():
        raise WireError("An update's indices must be strictly increasing.")
    if len(indices) and indices[-1] >= update.size:
        raise WireError(f"An update's indices must be below its size, {update.size}. Got {indices[-1]}.")


def _encode_indices(update: Update) -> tuple[int, int, bytes]:
    """The shortest of the codings: its number, its Rice parameter, its bytes."""
    indices = update.indices
    if indices is None:
        return _DENSE, 0, b""
    gaps = indices.copy()
    gaps[1:] -= indices[:-1] + np.uint32(1)
    rice_bytes, rice_bits, unary_bits = _best_rice(gaps)
    if _bytes_of(update.size) <= rice_bytes:
        bitmap = np.zeros(update.size, np.bool_)
        bitmap[indices] = True
        return _BITMAP, 0, _pack(bitmap)
    unary = np.zeros(unary_bits, np.bool_)
    unary[np.cumsum((gaps >> rice_bits) + np.uint32(1), dtype=np.int64) - 1] = True
    planes = np.empty((rice_bits, update.count), np.bool_)
    for bit, plane in enumerate(planes):
        np.not_equal(gaps & np.uint32(1 << bit), 0, out=plane)
    return _RICE, rice_bits, _pack(unary) + _pack(planes.ravel())


def _best_rice(gaps: NDArray[np.uint32]) -> tuple[int, int, int]:
    """The fewest bytes that Rice coding takes, the parameter b that takes them, and its unary bits."""
    count = len(gaps)
    best = (_LARGEST_U32, 0, 0)
    for b in range(32):
        low_bytes = _bytes_of(b * count)
        if _bytes_of(count) + low_bytes >= best[0]:  # neither this b nor a larger one can win
            break
        unary_bits = count + int((gaps >> b).sum(dtype=np.uint64))
        best = min(best, (_bytes_of(unary_bits) + low_bytes, b, unary_bits))
    return best


def _decode_indices(
    stored: NDArray[np.uint8], coding: int, rice_bits: int, size: int, count: int
) -> NDArray[np.uint32] | None:
    """The indices in the bytes `stored`, or WireError; `count` is at most `size`."""
    if coding not in (_DENSE, _BITMAP, _RICE):
        raise WireError(f"The payload's indices have the unknown coding {coding}.")
    if rice_bits > (31 if coding == _RICE else 0):
        raise WireError(f"The payload's Rice parameter is {rice_bits}, which its index coding does not allow.")
    if coding == _RICE:
        return _decode_rice(stored, rice_bits, size, count)
    expected = _bytes_of(size) if coding == _BITMAP else 0
    if len(stored) != expected:
        raise WireError(f"The payload has {len(stored)} bytes of indices where it must have {expected}.")
    if coding == _DENSE:
        if count != size:
            raise WireError(f"The payload is dense, and has {count} of {size} values.")
        return None
    indices = np.flatnonzero(_unpack(stored, size)).astype(np.uint32)
    if len(indices) != count:
        raise WireError(f"The payload's bitmap marks {len(indices)} entries, and its header claims {count}.")
    return indices


def _decode_rice(stored: NDArray[np.uint8], rice_bits: int, size: int, count: int) -> NDArray[np.uint32]:
    # The gaps sum to at most size - count, which bounds the unary stream before anything is unpacked.
    unary_bytes = len(stored) - _bytes_of(rice_bits * count)
    if not 0 <= unary_bytes <= _bytes_of(count + ((size - count) >> rice_bits)):
        raise WireError(f"The payload has {len(stored)} bytes of indices, which {count} of {size} entries cannot take.")
    if unary_bytes and not stored[unary_bytes - 1]:
        raise WireError("The payload's indices are followed by bytes that say nothing.")
    ends = np.flatnonzero(_unpack(stored[:unary_bytes], 8 * unary_bytes))
    if len(ends) != count:
        raise WireError(f"The payload lists {len(ends)} indices, and its header claims {count}.")
    planes = _unpack(stored[unary_bytes:], rice_bits * count).reshape(rice_bits, count)
    low_bits = np.zeros(count, np.uint32)
    for bit, plane in enumerate(planes):
        low_bits |= plane.astype(np.uint32) << np.uint32(bit)
    # ends[i] = q_0 + .. + q_i + i, and index i = g_0 + .. + g_i + i, where g = (q << b) + low bits.
    position = np.arange(count)
    indices = ((ends - position) << rice_bits) + np.cumsum(low_bits, dtype=np.int64) + position
    if count and indices[-1] >= size:
        raise WireError(f"The payload has an index of {indices[-1]} in a model of {size} entries.")
    return indices.astype(np.uint32)


def _bytes_of(bits: int) -> int:
    return (bits + 7) // 8


def _pack(bits: NDArray[np.bool_]) -> bytes:
    return np.packbits(bits, bitorder="little").tobytes()


def _unpack(stored: NDArray[np.uint8], bits: int) -> NDArray[np.bool_]:
    """The first `bits` bits of `stored`, which has just enough bytes for them; the rest must be zero."""
    if bits % 8 and stored[-1] >> (bits % 8):
        raise WireError("The payload's padding bits are not zero.")
    return np.unpackbits(stored, count=bits, bitorder="little").view(np.bool_)
