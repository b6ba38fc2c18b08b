import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.selection_math.sampling import (
    finite,
    gumbel_top,
    largest,
    min_max,
    shares,
    unseen_first,
    weighted_draws,
)
from tests.support.selecting import sequences

NAN = np.nan
reals = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20)
anything = st.lists(st.floats(), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("values", "flat", "expected"),
    [
        ([2.0, 1.0, 3.0, 1.5], 0.0, [0.5, 0.0, 1.0, 0.25]),
        ([7.0] * 3, 0.0, [0.0] * 3),
        ([7.0] * 3, 1.0, [1.0] * 3),
        ([NAN, 4.0, 2.0], 0.0, [NAN, 1.0, 0.0]),
        ([NAN, 4.0], 1.0, [NAN, 1.0]),
        ([NAN, NAN], 1.0, [NAN, NAN]),
    ],
)
def test_min_max_by_hand(values, flat, expected):
    """Equal values are `flat`, and unknown ones stay unknown."""
    np.testing.assert_array_equal(min_max(np.array(values), flat=flat), expected)


@given(reals)
def test_min_max_spans_the_unit_interval_and_keeps_the_order(values):
    array = np.array(values)
    mapped = min_max(array, flat=0.0)
    assert ((mapped >= 0) & (mapped <= 1)).all()
    assert (np.diff(mapped[np.argsort(array, kind="stable")]) >= 0).all()
    if len(set(values)) > 1:
        assert mapped[array.argmin()] == 0
        assert mapped[array.argmax()] == 1


def test_finite_takes_infinity_as_the_worst_and_nan_as_an_average_loss_or_zero():
    np.testing.assert_array_equal(finite(np.array([np.nan, np.inf, 1.0, 3.0, -np.inf])), [2.0, 3.0, 1.0, 3.0, 1.0])
    np.testing.assert_array_equal(finite(np.array([np.nan, np.inf])), [0.0, 0.0])


@given(anything)
def test_any_losses_can_be_ranked(values):
    array = np.array(values)
    safe = finite(array)
    mapped = min_max(safe, flat=0.0)
    assert np.isfinite(safe).all()
    assert ((mapped >= 0) & (mapped <= 1)).all()
    ordinary = np.isfinite(array) & (np.abs(array) < 1e300)
    np.testing.assert_array_equal(safe[ordinary], array[ordinary])


@pytest.mark.parametrize(("logits", "count"), [([0.0, 1.0, 2.0], 1), ([0.5, -1.0, 2.0, 0.0], 2)])
def test_gumbel_top_draws_like_sequential_softmax(logits, count):
    draws, rng = 5_000, np.random.default_rng(0)
    seen = {}
    for _ in range(draws):
        drawn = tuple(gumbel_top(np.array(logits), count, rng).tolist())
        seen[drawn] = seen.get(drawn, 0) + 1
    expected = {}
    for order, chance in sequences(np.exp(logits).tolist(), count):
        drawn = tuple(sorted(order))
        expected[drawn] = expected.get(drawn, 0.0) + chance
    assert sum(expected.values()) == pytest.approx(1.0)
    for drawn, chance in expected.items():
        # Five standard errors of a frequency.
        assert seen.get(drawn, 0) / draws == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / draws))


def test_shares_of_examples():
    np.testing.assert_allclose(shares(np.array([30, 10, 60])), [0.3, 0.1, 0.6])
    np.testing.assert_allclose(shares(np.array([0, 1])), [0, 1])
    np.testing.assert_allclose(shares(np.zeros(4, np.int64)), 0.25)
    assert shares(np.zeros(1, np.int64)).tolist() == [1.0]
    assert shares(np.zeros(0, np.int64)).size == 0


def test_unseen_first_takes_the_unseen_uniformly_and_then_the_others():
    seen, rng = np.array([True, False, True, False, False]), np.random.default_rng(0)
    two = np.bincount(np.concatenate([unseen_first(seen, 2, rng) for _ in range(900)]), minlength=5)
    assert two[[0, 2]].tolist() == [0, 0]
    np.testing.assert_allclose(two[[1, 3, 4]] / 900, 2 / 3, atol=0.06)
    four = [unseen_first(seen, 4, rng).tolist() for _ in range(50)]
    assert {tuple(picked) for picked in four} == {(0, 1, 3, 4), (1, 2, 3, 4)}
    assert unseen_first(seen, 9, rng).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 9])
def test_the_first_draws_are_those_of_the_whole_order(count):
    weights = np.array([2.0, 0.0, 5e-324, 1e308, 0.0, 3.0, 1.0, 0.0])
    for seed in range(50):
        order = weighted_draws(weights, weights.size, np.random.default_rng(seed))
        assert sorted(order[-3:].tolist()) == [1, 4, 7]
        assert weighted_draws(weights, count, np.random.default_rng(seed)).tolist() == order[:count].tolist()


@given(st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 1.0, 2.0]), max_size=12), st.integers(0, 13))
def test_the_largest_come_first_and_of_equals_the_earlier(values, count):
    downwards = [(math.isnan(value), 0.0 if math.isnan(value) else -value, place) for place, value in enumerate(values)]
    ranked = [place for _, _, place in sorted(downwards)]
    assert largest(np.array(values, np.float64), count).tolist() == ranked[:count]
