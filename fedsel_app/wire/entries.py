"""Entries of a round: those that all clients send with the compressor common-k, and the grid of their values.

The server states them in each instruction to train, and a client needs nothing else to know them. The exploited
entries are listed in the fewest bytes, and the explored ones are drawn from the seed among all others. A check sum
shows whether both sides have drawn the same.

Layout of a statement, with all numbers little-endian::

    offset  bytes  what
         0      1  bits of the ring
         1      1  index coding of the exploited entries, as in `codec`
         2      1  its Rice parameter
         3      1  place of the exponent of the round, e - `ring.LOWEST`
         4      4  examples with which a client has the weight 1; 0: all have it
         8      4  n, the greatest number of clients in the sum
        12      4  number of exploited entries
        16      4  number of explored entries
        20      8  seed of the run
        28      4  CRC-32 of all entries
        32      .  the exploited entries
"""

import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire import indices as index_codec
from fedsel_app.wire import ring
from fedsel_app.wire.bits import WireError
from fedsel_app.wire.codec import Update

Indices = NDArray[np.uint32]
NO_INDICES = np.zeros(0, np.uint32)
_HEAD = struct.Struct("<BBBBIIIIQI")


@dataclass(frozen=True, eq=False)
class RoundEntries:
    """Entries of a round.

    Attributes
    ----------
    indices : uint32 (count,), in increasing order; None: all
    bits : bits of the ring
    exponent : e, with which the largest value of a client is expected below 2^e
    clients : n, the greatest number of clients in the sum
    full_weight : examples with which a client's update has the weight 1; 0: all have it
    """

    indices: Indices | None
    bits: int
    exponent: int
    clients: int
    full_weight: int = 0

    def count(self, size: int) -> int:
        """Number of entries in a model of `size` entries."""
        return size if self.indices is None else self.indices.size

    @property
    def grid(self) -> int:
        """Exponent of the grid."""
        return ring.grid_of(self.exponent, self.bits, self.clients)

    def weight(self, examples: int) -> float:
        """By what a client with so many examples multiplies its update: at most 1, so that none can claim more."""
        return min(examples / self.full_weight, 1.0) if self.full_weight else 1.0

    def update(self, vector: NDArray[np.float32], examples: int) -> Update:
        """The update that a client with so many examples sends of its `vector`, (N,)."""
        values = vector if self.indices is None else vector[self.indices]
        values = values * np.float32(self.weight(examples))
        integers, _ = ring.quantise(values, self.grid, self.bits, self.clients)
        multiples = ring.Multiples(self.bits, self.grid, ring.exponent_of(values), integers)
        return Update(vector.size, self.indices, multiples.values(), multiples)

    def placed(self, sent: Update, size: int) -> Update:
        """The update of a model of `size` entries, of which a client has sent those of the round: see `of_entries`.

        Raises WireError unless it has sent all of them as multiples of this grid, of at most Q.
        """
        multiples, most = sent.quantised, ring.largest(self.bits, self.clients)
        if sent.indices is not None:
            raise WireError("it sent other entries than the server has stated for the round")
        if not (isinstance(multiples, ring.Multiples) and (multiples.bits, multiples.grid) == (self.bits, self.grid)):
            raise WireError(f"its values are not in multiples of 2^{self.grid} in a ring of {self.bits} bits")
        beyond = int(np.abs(multiples.integers.astype(np.int64)).max(initial=0))
        if beyond > most:
            raise WireError(f"it sent a multiple of {beyond}, and {self.clients} clients may send {most} each")
        return Update(size, self.indices, sent.values, multiples)


def of_entries(update: Update) -> Update:
    """What is sent of an update in multiples: the values alone, as a whole update of so many entries."""
    return Update(update.count, None, update.values, update.quantised)


def exponent_in(update: Update) -> int | None:
    """Exponent of the largest value of the client that sent `update`; None unless it is in multiples of a grid."""
    return update.quantised.exponent if isinstance(update.quantised, ring.Multiples) else None


def drawn_entries(exploited: Indices, count: int, size: int, seed: int, server_round: int) -> Indices:
    """The `exploited` entries and `count` others, drawn uniformly among all others, in increasing order."""
    others = np.delete(np.arange(size, dtype=np.uint32), exploited)
    rng = stream(seed, Purpose.ENTRIES, server_round)
    return np.sort(np.append(exploited, others[rng.choice(others.size, count, replace=False, shuffle=False)]))


def encode_entries(entries: RoundEntries, exploited: Indices, size: int, seed: int) -> bytes:
    """State the entries of a round, of which `exploited` are listed, in a model of `size` entries."""
    count = entries.count(size)
    coding, rice_bits, places = index_codec.encode_indices(exploited, seeded=False)
    numbers = entries.clients, exploited.size, count - exploited.size, seed, _check_sum(entries.indices)
    place = entries.exponent - ring.LOWEST
    return _HEAD.pack(entries.bits, coding, rice_bits, place, entries.full_weight, *numbers) + places


@lru_cache(maxsize=2)
def decode_entries(stated: bytes, size: int, server_round: int) -> RoundEntries:
    """Read what the server states for `server_round`, of a model of `size` entries.

    Raises WireError if it is not valid.
    """
    if len(stated) < _HEAD.size:
        raise WireError("The server does not state the entries of the round. Server and clients must run the same app.")
    bits, coding, rice_bits, place, full_weight, clients, listed, drawn, seed, check_sum = _HEAD.unpack_from(stated)
    sound = bits in ring.RINGS and place < ring.PLACES and clients and ring.largest(bits, clients)
    if not sound or not 1 <= listed + drawn <= size:
        raise WireError(f"The server states {listed + drawn} of {size} entries, {bits} bits and {clients} clients.")
    indices = None
    if listed + drawn < size:
        stored = np.frombuffer(stated, np.uint8, offset=_HEAD.size)
        exploited = index_codec.decode_indices(stored, coding, rice_bits, size, (None, server_round, 0, listed))
        if exploited is None:
            raise WireError("The server states entries without listing them.")
        indices = drawn_entries(exploited, drawn, size, seed, server_round)
        indices.setflags(write=False)
    if _check_sum(indices) != check_sum:
        raise WireError("The entries of the round differ from the server's: both need the same numpy release.")
    return RoundEntries(indices, bits, ring.LOWEST + place, clients, full_weight)


def _check_sum(indices: Indices | None) -> int:
    return 0 if indices is None else zlib.crc32(indices.astype("<u4", copy=False).tobytes())
