"""Sampling rows: m distributions over clients, one draw from each (Fraboni, Vidal, Kameni and Lorenzi, ICML 2021).

Every row sums to 1, and the entries of client i sum to m p_i. So the average of the m drawn updates is unbiased. The
mass of client i is m p_i, and each row has room for mass 1.
"""

import numpy as np
import scipy

from strategies.roster import Floats, Ints
from strategies.selection_math.similarity import among

ROUNDING = 1e-9
"""Masses that differ by less count as equal."""


def merge_tree(distances: Floats) -> Floats:
    """SciPy's merge table (n - 1, 4) of n >= 2 clients with these `distances` (n, n).

    Each step joins the two groups with the smallest mean distance.
    """
    condensed = scipy.spatial.distance.squareform(distances, checks=False)
    return np.asarray(scipy.cluster.hierarchy.linkage(condensed, "average"))


def pour(masses: Floats, rooms: Floats) -> Floats:
    """Pour the clients in order into the rows in order; return the mass of each client in each row, (rows, n)."""
    ends, row_ends = np.cumsum(masses), np.cumsum(rooms)[:, None]
    overlap = np.minimum(ends, row_ends) - np.maximum(ends - masses, row_ends - rooms[:, None])
    return np.asarray(np.maximum(overlap, 0.0))


def rows_by_similarity(shares: Floats, distances: Floats, rows: int, rng: np.random.Generator) -> Floats:
    """Algorithm 2: groups of similar clients with mass <= 1. The heaviest groups become rows, and the others fill
    these.

    A client with mass 1 or more first gets as many whole rows of its own; the rest of its mass is treated like that of
    other clients. `rng` shuffles the clients of the groups that fill rows. `distances` is float64 (n, n). Returns
    float64 (rows, n).
    """
    masses = rows * shares
    whole_rows = np.floor(masses + ROUNDING).astype(np.int64)
    whole = np.repeat(np.arange(shares.size), whole_rows)
    table = np.zeros((rows, shares.size))
    table[np.arange(whole.size), whole] = 1.0
    left = rows - whole.size
    rest = np.maximum(masses - whole_rows, 0.0)
    clients = np.flatnonzero(rest > ROUNDING)
    if not left:
        return table
    labels = _light_groups(rest[clients], among(distances, clients))
    weights = np.bincount(labels, weights=rest[clients])
    lightest_first = np.argsort(weights, kind="stable")
    kept, others = lightest_first[-left:], lightest_first[:-left]
    shared = table[whole.size :]
    for row, group in zip(shared, kept.tolist(), strict=True):
        members = clients[labels == group]
        row[members] = rest[members]
    if others.size:
        order = np.concatenate([rng.permutation(clients[labels == group]) for group in others.tolist()])
        shared[:, order] = pour(rest[order], np.maximum(1.0 - weights[kept], 0.0))
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _light_groups(masses: Floats, distances: Floats) -> Ints:
    """Labels 0.. of the largest groups of the merge tree whose mass is at most 1."""
    if masses.size < 2:
        return np.zeros(masses.size, np.int64)
    tree = merge_tree(distances)
    mass = np.concatenate([masses, np.zeros(len(tree))])
    for step, (left, right) in enumerate(tree[:, :2].astype(np.int64).tolist()):
        mass[masses.size + step] = mass[left] + mass[right]
    tree[:, 2] = mass[masses.size :]
    return np.asarray(scipy.cluster.hierarchy.fcluster(tree, 1.0 + ROUNDING, "distance")) - 1


def draw(rows: Floats, rng: np.random.Generator) -> Ints:
    """One position from each row, int64 (rows,)."""
    upto = np.cumsum(rows, axis=1)
    point = rng.random((len(rows), 1)) * upto[:, -1:]
    return np.asarray((point < upto).argmax(axis=1))
