"""Compressors: top-k with its coordinate scores, rand-k, QSGD, and rounding of values to few bits.

QSGD is D. Alistarh et al., NeurIPS 2017, arXiv 1610.02132 (Sec. 3.1, in buckets). The "HeteRo-Select" paper on
informativeness, Sec. III-D, has the coordinate scores (Eq. 10) and the Markov draw of the layers to which they apply.
Pure NumPy: arrays in, arrays out.

Deviations: Eq. 10 adds epsilon to |H|; here epsilon is a lower bound of |H|, as in the authors' code.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.wire.codec import Update
from fedsel_app.wire.rounded_values import round_values
from fedsel_app.wire.values import Quantised

Vector = NDArray[np.float32]
CURVATURE_FLOOR = 1e-6
"""Smallest |H|; smaller ones are clamped to it."""


def top_indices(scores: Vector, count: int) -> NDArray[np.uint32]:
    """Positions, in increasing order, of the `count` largest of `scores` (N,); ties go to the lowest positions.

    Raises ValueError if a score is NaN.
    """
    threshold = np.partition(scores, scores.size - count)[scores.size - count]
    chosen = np.flatnonzero(scores >= threshold)
    surplus = chosen.size - count
    if surplus < 0:
        raise ValueError("A coordinate score is not a number: the update or its curvature is not finite.")
    if surplus:
        ties = np.flatnonzero(scores[chosen] == threshold)
        chosen = np.delete(chosen, ties[ties.size - surplus :])
    return chosen.astype(np.uint32)


def coordinate_scores(vector: Vector, curvature: Mapping[int, Vector], layers: Sequence[LayerSlice]) -> Vector:
    """Score every coordinate: s_i = v_i^2, and v_i^2 / max(|H_ii|, `CURVATURE_FLOOR`) where H is known (Eq. 10).

    The squares of entries below 3e-23 are 0 in float32, so such entries count as equal.

    Parameters
    ----------
    vector : v, float32 (N,)
    curvature : layer number -> estimate of diag H over that layer's slice
    layers : the model's layers, by number
    """
    scores = np.square(vector)
    for number, diagonal in curvature.items():
        scores[layers[number].start : layers[number].stop] /= np.maximum(np.abs(diagonal), np.float32(CURVATURE_FLOOR))
    return scores


def top_k(vector: Vector, scores: Vector, count: int) -> Update:
    """Top-k: keep the `count` entries of `vector` (N,) with the largest scores; if all, it is dense."""
    if count == vector.size:
        return Update(vector.size, None, vector.copy())
    indices = top_indices(scores, count)
    return Update(vector.size, indices, vector[indices])


def rand_k(vector: Vector, indices: NDArray[np.uint32], *, unbiased: bool) -> Update:
    """Rand-k: the entries of `vector` (N,) at `indices`, drawn uniformly; if `unbiased`, they are scaled by N/k."""
    if indices.size == vector.size:
        return Update(vector.size, None, vector.copy())
    scale = vector.size / indices.size if unbiased else 1.0
    return Update(vector.size, indices, vector[indices] * np.float32(scale))


def qsgd(vector: Vector, levels: int, bucket: int, rng: np.random.Generator, *, unbiased: bool) -> Update:
    """QSGD: each entry of `vector` (N,) rounded at random to its bucket's grid ||v||_2 {-1, ..., -1/s, 0, 1/s, ..., 1}.

    The rounding is unbiased, with E||C(v) - v||^2 <= omega ||v||^2, omega = min(B / s^2, sqrt(B) / s). Without
    `unbiased` the values are divided by 1 + omega, which makes the compressor a contraction.
    """
    size, bucket = vector.size, min(bucket, vector.size)
    padded = np.zeros(-(-size // bucket) * bucket, np.float64)
    padded[:size] = vector
    rows = padded.reshape(-1, bucket)
    norms = np.sqrt(np.square(rows).sum(axis=1)).astype(np.float32)
    whole = norms.astype(np.float64)[:, None]
    exact = np.divide(levels * np.abs(rows), whole, out=np.zeros_like(rows), where=whole > 0).ravel()[:size]
    floor = np.floor(exact)
    # Without this bound, the only nonzero entry of a bucket could exceed the last level if its norm is rounded down.
    rounded = np.minimum(floor + (rng.random(size) < exact - floor), levels)
    if not unbiased:
        norms /= np.float32(1.0 + min(bucket / levels**2, math.sqrt(bucket) / levels))
    quantised = Quantised(norms, np.copysign(rounded, vector).astype(np.int16), bucket, levels)
    return Update(size, None, quantised.values(), quantised)


def rounded(update: Update, bits: int, rng: np.random.Generator | None) -> Update:
    """Round the values of `update` to `bits`, 16, 8 or 4, as `round_values` does."""
    # For values that are not finite: `wire.encode` refuses them.
    with np.errstate(invalid="ignore"):
        grid = round_values(update.values, bits, rng)
        return Update(update.size, update.indices, grid.values(), grid)


def layer_shares(
    indices: NDArray[np.uint32] | None, layers: Sequence[LayerSlice], *, of_own: bool = False
) -> NDArray[np.float64]:
    """Layer shares of a top-k mask, one for each of the `layers`.

    Parameters
    ----------
    indices : kept positions of the mask in increasing order; None for all of them
    layers : the model's layers
    of_own : share of the layer that is in the mask; by default share of the mask that is in the layer (they sum to 1)
    """
    starts = np.array([layer.start for layer in layers])
    stops = np.array([layer.stop for layer in layers])
    kept = stops - starts if indices is None else np.searchsorted(indices, stops) - np.searchsorted(indices, starts)
    return np.asarray(kept / (stops - starts if of_own else kept.sum()), dtype=np.float64)


EXPLORE = 0.2
"""Share of the draw of layers that is uniform (HeteRo-Select, Sec. V-D)."""


def draw_layers(shares: NDArray[np.float64], layers_wanted: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw layer numbers without replacement, one after another (Sec. III-D, the Markov rule).

    The probability of layer j is (1 - EXPLORE) shares_j / sum(shares) + EXPLORE / L. If fewer than `layers_wanted`
    layers have a positive probability, fewer are returned.

    Returns int64, in increasing order.
    """
    probabilities = (1.0 - EXPLORE) * shares / shares.sum() + EXPLORE / shares.size
    probabilities /= probabilities.sum()
    size = min(layers_wanted, int(np.count_nonzero(probabilities)))
    return np.sort(rng.choice(shares.size, size=size, replace=False, p=probabilities))
