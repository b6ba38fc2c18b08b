"""Inner products of remembered updates, kept up to date a few clients at a time, and what follows from them."""

from collections.abc import Iterable, Mapping

import numpy as np

from fedsel_app.wire import Update
from strategies.roster import Floats

SAME = 1e-12
"""Squared distances below this share of the squared norms are rounding: such vectors are equal."""


def layer_part(update: Update, start: int, stop: int) -> Update:
    """The entries [start, stop) of an update, as an update of that size."""
    if update.indices is None:
        return Update(stop - start, None, update.values[start:stop].copy())
    first, last = np.searchsorted(update.indices, [start, stop])
    return Update(stop - start, update.indices[first:last] - np.uint32(start), update.values[first:last].copy())


def refreshed_gram(gram: Floats, updates: Mapping[int, Update], changed: Iterable[int]) -> Floats:
    """A copy of `gram`, float64 (K, K), with the inner products of the `changed` clients computed anew.

    Clients that `updates` does not hold have the zero vector.
    """
    fresh = gram.copy()
    for client in changed:
        vector = updates[client].dense()
        for other, update in updates.items():
            fresh[client, other] = fresh[other, client] = update.dot(vector)
    return fresh


def angles(gram: Floats) -> Floats:
    """arccos of the cosines that belong to inner products (n, n), in [0, pi]; 0 where either vector is zero."""
    norms = np.sqrt(np.diagonal(gram))
    scale = np.outer(norms, norms)
    cosines = np.divide(gram, scale, out=np.ones_like(scale), where=scale > 0)
    angle = np.arccos(np.clip(cosines, -1.0, 1.0))
    np.fill_diagonal(angle, 0.0)
    return np.asarray(angle)


def euclidean(gram: Floats) -> Floats:
    """Distances ||g_i - g_j|| that belong to inner products (n, n)."""
    squares = np.diagonal(gram)
    scale = squares[:, None] + squares
    squared = scale - 2.0 * gram
    return np.sqrt(np.where(squared > SAME * scale, squared, 0.0))
