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


def merge_tree(distances: Floats, how: str) -> Floats:
    """SciPy's merge table (n - 1, 4) of n >= 2 clients with these `distances` (n, n).

    `average` joins the groups with the smallest mean distance. `ward-rows` is the authors' Ward linkage, which uses the
    rows of the distance matrix as feature vectors.
    """
    if how == "ward-rows":
        return np.asarray(scipy.cluster.hierarchy.linkage(scipy.spatial.distance.pdist(distances), "ward"))
    condensed = scipy.spatial.distance.squareform(distances, checks=False)
    return np.asarray(scipy.cluster.hierarchy.linkage(condensed, how))


def pour(masses: Floats, rooms: Floats) -> Floats:
    """Pour the clients in order into the rows in order; return the mass of each client in each row, (rows, n)."""
    ends, row_ends = np.cumsum(masses), np.cumsum(rooms)[:, None]
    overlap = np.minimum(ends, row_ends) - np.maximum(ends - masses, row_ends - rooms[:, None])
    return np.asarray(np.maximum(overlap, 0.0))


def rows_by_size(shares: Floats, rows: int) -> Floats:
    """Algorithm 1: pour the clients, by descending p_i, into the rows. Returns float64 (rows, n)."""
    order = np.argsort(-shares, kind="stable")
    poured = np.zeros((rows, shares.size))
    poured[:, order] = pour(rows * shares[order], np.ones(rows))
    return _distributions(poured)


def rows_by_similarity(shares: Floats, distances: Floats, rows: int, how: str, rng: np.random.Generator) -> Floats:
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
    labels = _light_groups(rest[clients], among(distances, clients), how)
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
    return _distributions(table)


def _light_groups(masses: Floats, distances: Floats, how: str) -> Ints:
    """Labels 0.. of the largest groups of the merge tree whose mass is at most 1."""
    if masses.size < 2:
        return np.zeros(masses.size, np.int64)
    tree = merge_tree(distances, how)
    mass = np.concatenate([masses, np.zeros(len(tree))])
    for step, (left, right) in enumerate(tree[:, :2].astype(np.int64).tolist()):
        mass[masses.size + step] = mass[left] + mass[right]
    tree[:, 2] = mass[masses.size :]
    return np.asarray(scipy.cluster.hierarchy.fcluster(tree, 1.0 + ROUNDING, "distance")) - 1


def _distributions(table: Floats) -> Floats:
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def draw(rows: Floats, rng: np.random.Generator) -> Ints:
    """One position from each row, int64 (rows,)."""
    upto = np.cumsum(rows, axis=1)
    point = rng.random((len(rows), 1)) * upto[:, -1:]
    return np.asarray((point < upto).argmax(axis=1))
