import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clients.compressors import coordinate_scores, draw_layers, layer_shares, top_indices, top_k
from fedsel_app.wire.indices import kept_count
from tests.support.uploads import LAYERS

finite = st.floats(-1e6, 1e6, width=32)
coarse = st.sampled_from([0.0, 1.0, 2.0])  # many ties
vectors = arrays(np.float32, st.integers(1, 60), elements=finite | coarse)


@pytest.mark.parametrize(
    ("fraction", "size", "down", "expected"),
    [
        (0.25, 10, False, 3),
        (0.25, 10, True, 2),
        (0.07, 100, False, 7),  # in floating point 7.000000000000001
        (0.29, 100, True, 29),  # in floating point 28.999999999999996
        (0.30000004, 10, False, 3),  # 3.0000004 is 3 to six decimals
        (0.001, 10, True, 1),
        (1.0, 2_781_514, False, 2_781_514),
        (1.0, 2_781_514, True, 2_781_514),
    ],
)
def test_kept_count_by_hand(fraction, size, down, expected):
    assert kept_count(fraction, size, down=down) == expected


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, float("nan")])
def test_kept_count_refuses_what_is_no_fraction(fraction):
    with pytest.raises(ValueError, match="kept fraction"):
        kept_count(fraction, 10)


@given(vectors, st.data())
def test_top_indices_are_the_head_of_a_stable_descending_sort(scores, data):
    count = data.draw(st.integers(1, scores.size))
    by_rank = sorted(range(scores.size), key=lambda i: (-scores[i], i))
    found = top_indices(scores, count)
    assert found.dtype == np.uint32
    assert found.tolist() == sorted(by_rank[:count])


def test_top_indices_refuse_a_score_that_is_not_a_number():
    scores = np.array([1.0, np.nan, 3.0, 2.0], np.float32)
    for count in (1, 2, 3, 4):
        with pytest.raises(ValueError, match="not a number"):
            top_indices(scores, count)


def biggest(vector, count):
    """Top-k over the whole vector by magnitude."""
    return top_k(vector, np.abs(vector), count)


@given(vectors, st.data())
def test_sent_plus_left_is_the_vector_bit_for_bit(vector, data):
    count = data.draw(st.integers(1, vector.size))
    before = vector.copy()
    update = biggest(vector, count)
    sent = update.dense()
    residual = vector - sent
    assert update.count == count
    assert np.array_equal(vector, before)
    assert np.array_equal(sent + residual, vector)
    assert not np.any((sent != 0) & (residual != 0))
    # No `count` entries hold more energy, so at most 1 - count/N of it is left.
    left, whole = (float(np.square(part, dtype=np.float64).sum()) for part in (residual, vector))
    assert left <= (1 - count / vector.size) * whole * (1 + 1e-12)


@pytest.mark.parametrize(
    ("curvature", "expected"),
    [
        ({}, [4, 4, 4, 4]),
        ({1: [-0.5, 2, 9e-7, 0.125]}, [8, 2, 4e6, 32]),
    ],
)
def test_scores_by_hand(curvature, expected):
    """Squares, which |H|, at least 1e-6, divides on the second layer."""
    vector = np.array([1, -3, 2, 2, -2, 2, 0.5, 0, 0, 0], np.float32)
    diagonal = {number: np.array(values, np.float32) for number, values in curvature.items()}
    scores = coordinate_scores(vector, diagonal, LAYERS)
    np.testing.assert_allclose(scores, [1, 9, *expected, 0.25, 0, 0, 0], rtol=1e-6)
    assert scores.dtype == np.float32


def test_layer_shares_by_hand():
    indices = np.array([1, 2, 3, 4], np.uint32)
    assert layer_shares(indices, LAYERS).tolist() == [0.25, 0.75, 0.0]
    assert layer_shares(indices, LAYERS, of_own=True).tolist() == [0.5, 0.75, 0.0]
    assert layer_shares(None, LAYERS).tolist() == [0.2, 0.4, 0.4]
    assert layer_shares(None, LAYERS, of_own=True).tolist() == [1.0, 1.0, 1.0]


def test_one_layer_is_drawn_with_the_mixed_probability():
    """0.8 share + 0.2 / 3 of shares (0.5, 1.5, 0): 0.2667, 0.6667, 0.0667; each within 4 standard errors."""
    rng = np.random.default_rng(0)
    draws = 3000
    counts = np.zeros(3)
    for _ in range(draws):
        counts[draw_layers(np.array([0.5, 1.5, 0.0]), 1, rng)] += 1
    expected = np.array([0.8 * 0.25 + 0.2 / 3, 0.8 * 0.75 + 0.2 / 3, 0.2 / 3])
    error = np.sqrt(expected * (1 - expected) / draws)
    assert np.all(np.abs(counts / draws - expected) < 4 * error)


@given(arrays(np.float64, 5, elements=st.floats(0.01, 1.0)), st.integers(1, 8), st.integers(0, 99))
def test_drawn_layers_are_distinct_and_sorted(shares, wanted, seed):
    layers = draw_layers(shares, wanted, np.random.default_rng(seed)).tolist()
    assert len(layers) == min(wanted, 5)
    assert layers == sorted(set(layers))
