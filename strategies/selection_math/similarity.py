"""Last updates of the clients, their inner products, and the angles and distances from these.

The inner products are computed anew only for the clients that have sent an update.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update, decode, encode
from strategies.checkpoint import Arrays
from strategies.roster import Floats, Ints, Outcome

SAME = 1e-12
"""Squared distances below this share of the squared norms count as rounding errors: the vectors are equal."""
BLOCK_ENTRIES = 2**16
"""Entries processed at a time, so that intermediate arrays stay in the processor's cache."""
VECTOR_ENTRIES = 2**22
"""Entries of dense vectors that are in memory at a time."""


class LastUpdates(dict[int, Update]):
    """Client id -> its last aggregated update. The server keeps them for methods whose `needs` ask for updates."""

    def add(self, outcome: Outcome) -> None:
        """Keep the updates of a round's outcome, which replace earlier ones of the same clients."""
        self.update(zip(outcome.clients.tolist(), outcome.updates, strict=True))

    def state(self) -> Arrays:
        """The wire payloads of the last updates, by ascending client. `ends` has the end of each payload."""
        clients = sorted(self)
        payloads = [encode(self[client], client=client, server_round=0) for client in clients]
        return {
            "size": np.array(self[clients[0]].size if clients else 0),
            "clients": np.array(clients, np.int64),
            "ends": np.cumsum([len(payload) for payload in payloads], dtype=np.int64),
            "payloads": np.frombuffer(b"".join(payloads), np.uint8),
        }

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned. Raises ValueError if a payload is damaged."""
        size, payloads, ends = int(state["size"]), state["payloads"], state["ends"].tolist()
        self.clear()
        for start, end in zip([0, *ends][:-1], ends, strict=True):
            packet = decode(payloads[start:end].tobytes(), size=size)
            self[packet.client] = packet.update
        if list(self) != state["clients"].tolist():
            raise ValueError("payloads of other clients")


def layer_part(update: Update, start: int, stop: int) -> Update:
    """The entries [start, stop) of an update, as an update of that size."""
    if update.indices is None:
        return Update(stop - start, None, update.values[start:stop].copy())
    first, last = np.searchsorted(update.indices, [start, stop])
    return Update(stop - start, update.indices[first:last] - np.uint32(start), update.values[first:last].copy())


def inner_products(updates: Sequence[Update], vectors: Sequence[NDArray[np.floating]]) -> Floats:
    """Inner product of every update and vector (N,): float64 (vectors, updates).

    Many short updates of equal length are multiplied at a time. It is not BLAS, whose sums depend on the number of
    threads.
    """
    products = np.empty((len(vectors), len(updates)))
    for places in _alike(updates):
        values = _stacked([updates[place].values for place in places])
        sparse = [indices for place in places if (indices := updates[place].indices) is not None]
        picked = _stacked(sparse) if sparse else slice(None)
        for row, vector in enumerate(vectors):
            products[row, places] = np.multiply(values, vector[picked], dtype=np.float64).sum(axis=1)
    return products


def _stacked(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of equal length as one array; faster than `np.stack` for many short rows."""
    return np.concatenate(rows).reshape(len(rows), rows[0].size)


def _alike(updates: Sequence[Update]) -> Iterator[list[int]]:
    """Places of all updates, in groups of one kind and length, of at most `BLOCK_ENTRIES` entries (or one)."""
    kinds: dict[tuple[bool, int], list[int]] = {}
    for place, update in enumerate(updates):
        kinds.setdefault((update.indices is None, update.count), []).append(place)
    for (_, count), places in kinds.items():
        yield from (places[rows] for rows in blocks(len(places), count))


def blocks(rows: int, width: int, entries: int | None = None) -> Iterator[slice]:
    """Slices that cover `rows` rows of a `width`, of at most `entries` entries (`BLOCK_ENTRIES`), or of one row."""
    step = max((entries or BLOCK_ENTRIES) // max(width, 1), 1)
    return (slice(start, start + step) for start in range(0, rows, step))


def among(square: Floats, ids: Ints) -> Floats:
    """The part of a square array (K, K) for ascending `ids`: the array itself if they are all ids, else a copy."""
    return square if ids.size == len(square) else np.asarray(square[np.ix_(ids, ids)])


def refreshed_gram(gram: Floats, updates: Mapping[int, Update], changed: Iterable[int]) -> Floats:
    """A copy of `gram`, float64 (K, K), with new inner products of the `changed` clients.

    Clients without an entry in `updates` have the zero vector.
    """
    fresh = gram.copy()
    others, clients = np.array(list(updates), np.int64), list(changed)
    held = list(updates.values())
    if not clients:
        return fresh
    for rows in blocks(len(clients), held[0].size, VECTOR_ENTRIES):
        products = inner_products(held, [updates[client].dense() for client in clients[rows]])
        for client, row in zip(clients[rows], products, strict=True):
            fresh[client, others] = fresh[others, client] = row
    return fresh


def angles(gram: Floats, out: Floats | None = None) -> Floats:
    """Angles from inner products (n, n): arccos of the cosines, in [0, pi]; 0 if one of the vectors is zero.

    They are written to `out` if given, which may be `gram`.
    """
    lengths = np.sqrt(np.diagonal(gram))
    angle = np.empty_like(gram) if out is None else out
    for rows in blocks(*gram.shape):
        scale = np.outer(lengths[rows], lengths)
        cosines = np.divide(gram[rows], scale, out=np.ones_like(scale), where=scale > 0)
        np.arccos(np.clip(cosines, -1.0, 1.0), out=angle[rows])
    np.fill_diagonal(angle, 0.0)
    return angle


def euclidean(gram: Floats) -> Floats:
    """Distances ||g_i - g_j|| from inner products (n, n)."""
    squares = np.diagonal(gram)
    distances = np.empty_like(gram)
    for rows in blocks(*gram.shape):
        scale = squares[rows, None] + squares
        squared = scale - 2.0 * gram[rows]
        np.sqrt(np.where(squared > SAME * scale, squared, 0.0), out=distances[rows])
    return distances
