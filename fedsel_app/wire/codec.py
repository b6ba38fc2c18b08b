"""Update codec: encodes a sparse or dense model update as bytes, exactly, and decodes bytes without trusting them.

Layout of a payload, with all numbers little-endian::

    offset  bytes  what
         0      4  magic "FSEL"
         4      1  version, 1
         5      1  value coding: 1 float32; 6 float64; 2, 4, 5 rounded to 16, 8, 4 bits; 3 quantised; 7, 8, 9, 10,
                   11 multiples in a ring of 8, 16, 24, 32, 6 bits
         6      1  index coding: 0 dense, 1 Rice-coded gaps, 2 seeded
         7      1  Rice parameter b, 0..31; 0 in the other codings
         8      4  size N, the model's entries
        12      4  count, the entries sent
        16      4  client, its partition id
        20      4  round
        24      .  the indices (`indices`)
         .      .  the values: float32 of 4 bytes or float64 of 8 bytes each, or rounded (`rounded_values`), or
                   multiples (`ring`), or quantised (`values`, where the indices follow the head of the values)
         .      4  CRC-32 of all bytes before it

Bit streams fill each byte from its lowest bit; the last byte's unused bits are zero. A dense update has no bytes of
indices. For other indices, unless they are seeded, `encode` chooses the shortest Rice coding.
"""

import struct
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire import indices as index_codec
from fedsel_app.wire import ring, rounded_values
from fedsel_app.wire import values as value_codec
from fedsel_app.wire.bits import WireError as WireError
from fedsel_app.wire.ring import Multiples
from fedsel_app.wire.rounded_values import Rounded
from fedsel_app.wire.values import Quantised

_HEADER = struct.Struct("<4sBBBBIIII")
_CRC = struct.Struct("<I")
_OVERHEAD_BYTES = _HEADER.size + _CRC.size
_MAGIC, _VERSION = b"FSEL", 1
_QUANTISED = 3
_FLOATS: dict[int, np.dtype[Any]] = {1: np.dtype("<f4"), 6: np.dtype("<f8")}
_FLOAT_CODING = {dtype.itemsize: coding for coding, dtype in _FLOATS.items()}
_ROUNDED = {2: 16, 4: 8, 5: 4}
_ROUNDED_CODING = {bits: coding for coding, bits in _ROUNDED.items()}
_RINGS = {7: 8, 8: 16, 9: 24, 10: 32, 11: 6}
_RING_CODING = {bits: coding for coding, bits in _RINGS.items()}
_LARGEST_U32 = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Update:
    """A model update of which `count` entries are present and the others are zero.

    Attributes
    ----------
    size : entries of the whole model, N
    indices : uint32 (count,), strictly increasing and below `size`; None if every entry is present
    values : float32 (count,), the entries at `indices`; float64 for a model that has arrays of float64, and for
        multiples in a ring of 32 bits
    quantised : the same values as levels or multiples, if they are rounded; the payload then has these
    """

    size: int
    indices: NDArray[np.uint32] | None
    values: NDArray[Any]
    quantised: Quantised | Rounded | Multiples | None = None

    def __eq__(self, other: object) -> bool:
        """Compare bit for bit: -0.0 differs from 0.0, and a dense update from a sparse one that lists all entries."""
        if not isinstance(other, Update):
            return NotImplemented
        mine, theirs = self.indices, other.indices
        same_places = mine is theirs if mine is None or theirs is None else np.array_equal(mine, theirs)
        return self.size == other.size and same_places and self.values.tobytes() == other.values.tobytes()

    @property
    def count(self) -> int:
        """Entries present."""
        return len(self.values)

    def dense(self) -> NDArray[Any]:
        """The update as a new array (size,), of the type of its values."""
        full = np.zeros(self.size, self.values.dtype)
        full[self._places] = self.values
        return full

    def largest(self) -> float:
        """Largest absolute value of an entry; 0 without entries."""
        return float(max(self.values.max(initial=0.0), -self.values.min(initial=0.0)))

    def norm(self) -> float:
        """Euclidean norm, in float64."""
        return self._norm

    @cached_property
    def _norm(self) -> float:
        squares = self.values.astype(np.float64)
        with np.errstate(over="ignore"):  # the norm of such an update is inf
            squares *= squares
            return float(np.sqrt(squares.sum()))

    @property
    def _places(self) -> NDArray[np.uint32] | slice:
        return slice(None) if self.indices is None else self.indices


@dataclass(frozen=True)
class Packet:
    """Content of one payload: the update, and the partition id and round that it belongs to."""

    update: Update
    client: int
    server_round: int


def bits_of_values(update: Update) -> int:
    """Bits of the values alone, as papers count them: 32 for each float32 sent (QSGD: its fixed width)."""
    return 8 * update.values.nbytes if update.quantised is None else update.quantised.bits_of_values()


def whole_bytes(update: Update) -> int:
    """Bytes of the payload of an update that has all entries as they are."""
    return _OVERHEAD_BYTES + update.values.nbytes


def index_bits(payload: bytes) -> int:
    """Bits spent on indices in a payload that `encode` made or `decode` accepted."""
    header = _HEADER.unpack_from(payload)
    return 8 * _index_bytes(_body(payload), header[2], header[6])


def encode(update: Update, *, client: int, server_round: int, seeded: bool = False) -> bytes:
    """Encode `update` as a payload, with its indices in the fewest bytes.

    With `seeded`, the payload does not contain the indices, because the receiver draws them itself. They must be
    ``indices.seeded_indices`` of this client and round.

    Raises WireError if `update` violates the description of its class, a value is not finite, or a number does not fit
    32 bits.
    """
    refuse_unsendable(update, client, server_round)
    coding, rice_bits, places = index_codec.encode_indices(update.indices, seeded=seeded)
    quantised = update.quantised
    sections: list[bytes | memoryview]
    if quantised is None:
        value_coding = _FLOAT_CODING[update.values.itemsize]
        sections = [places, np.ascontiguousarray(update.values, _FLOATS[value_coding]).view(np.uint8).data]
    elif isinstance(quantised, Rounded):
        value_coding = _ROUNDED_CODING[quantised.bits]
        sections = [places, rounded_values.encode_values(quantised)]
    elif isinstance(quantised, Multiples):
        value_coding = _RING_CODING[quantised.bits]
        sections = [places, ring.encode_multiples(quantised)]
    else:
        value_coding = _QUANTISED
        sections = [value_codec.encode_values(quantised, places)]
    if quantised is not None and quantised.values().tobytes() != update.values.tobytes():
        raise WireError("An update's values must be those of its levels.")
    codings = (value_coding, coding, rice_bits)
    header = _HEADER.pack(_MAGIC, _VERSION, *codings, update.size, update.count, client, server_round)
    checksum = 0
    for part in (header, *sections):
        checksum = zlib.crc32(part, checksum)
    return b"".join((header, *sections, _CRC.pack(checksum)))


def decode(payload: bytes | memoryview, *, size: int, seed: int | None = None) -> Packet:
    """Decode `payload` for a model of `size` entries; ``decode(encode(u)).update == u`` bit for bit.

    `seed` is the run's seed, from which seeded indices are drawn. The payload's length and `size` bound the memory that
    decoding uses, even if the payload claims larger numbers.

    Raises WireError if `payload` violates the format, or belongs to a model with another number of entries.
    """
    if len(payload) < _OVERHEAD_BYTES:
        raise WireError(f"The payload is cut short: {len(payload)} bytes, and {_OVERHEAD_BYTES} is the least.")
    magic, version, value_coding, coding, *rest = _HEADER.unpack_from(payload)
    rice_bits, claimed_size, count, client, server_round = rest
    if magic != _MAGIC:
        raise WireError(f"The payload is not an update: it starts with {magic!r}, not {_MAGIC!r}.")
    if version != _VERSION:
        raise WireError(f"The payload is of version {version}; this program reads version {_VERSION}.")
    if _CRC.pack(zlib.crc32(memoryview(payload)[: -_CRC.size])) != payload[-_CRC.size :]:
        raise WireError("The payload is damaged: its CRC-32 does not match.")
    if value_coding not in (*_FLOATS, _QUANTISED, *_ROUNDED, *_RINGS):
        raise WireError(f"The payload's values have the unknown coding {value_coding}.")
    if claimed_size != size:
        raise WireError(f"The payload is of a model of {claimed_size} entries; this one has {size}.")
    if count > size:
        raise WireError(f"The payload claims {count} of {size} entries.")
    body = _body(payload)
    index_bytes = _index_bytes(body, value_coding, count)
    before = value_codec.HEAD.size if value_coding == _QUANTISED else 0
    stored = np.frombuffer(body, np.uint8, index_bytes, before)
    indices = index_codec.decode_indices(stored, coding, rice_bits, size, (seed, server_round, client, count))
    if value_coding not in _FLOATS:
        quantised: Quantised | Rounded | Multiples
        if value_coding == _QUANTISED:
            quantised = value_codec.decode_values(body, count)
        elif value_coding in _RINGS:
            quantised = ring.decode_multiples(body[index_bytes:], count, _RINGS[value_coding])
        else:
            quantised = rounded_values.decode_values(body[index_bytes:], count, _ROUNDED[value_coding])
        return Packet(Update(size, indices, quantised.values(), quantised), client, server_round)
    stored_type = _FLOATS[value_coding]
    values = np.frombuffer(body, stored_type, count, index_bytes).astype(stored_type.newbyteorder("="))
    if not np.isfinite(values).all():
        raise WireError("The payload holds a value that is not finite.")
    return Packet(Update(size, indices, values), client, server_round)


def _body(payload: bytes | memoryview) -> memoryview:
    """Body of a payload: the indices and values."""
    return memoryview(payload)[_HEADER.size : -_CRC.size]


def _index_bytes(body: memoryview, value_coding: int, count: int) -> int:
    """Bytes of indices in a payload's body. Raises WireError if the body is too short for its values."""
    if value_coding == _QUANTISED:
        return value_codec.index_bytes(body)
    if value_coding in _FLOATS:
        value_bytes = _FLOATS[value_coding].itemsize * count
    elif value_coding in _RINGS:
        value_bytes = ring.section_bytes(count, _RINGS[value_coding])
    else:
        value_bytes = rounded_values.section_bytes(count, _ROUNDED[value_coding])
    size = len(body) - value_bytes
    if size < 0:
        raise WireError(f"The payload is too short for the {count} values it claims.")
    return size


def refuse_unsendable(update: Update, client: int, server_round: int) -> None:
    """Raise WireError if the update violates the description of its class, or has a value that is not finite."""
    if not 1 <= update.size <= _LARGEST_U32:
        raise WireError(f"An update's size must be in [1, {_LARGEST_U32}]. Got {update.size}.")
    for name, number in (("client", client), ("round", server_round)):
        if not 0 <= number <= _LARGEST_U32:
            raise WireError(f"An update's {name} must be in [0, {_LARGEST_U32}]. Got {number}.")
    values, indices = update.values, update.indices
    if values.dtype not in (np.float32, np.float64) or values.ndim != 1:
        raise WireError(f"An update's values must be float32 or float64 (count,). Got {values.dtype} {values.shape}.")
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
