"""Exact sums against Python's fractions: one rounding of each term, and the same bits in any order and grouping."""

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.exact_sums import BITS, HIGHEST, LOWEST, MOST, PART, STEP, ExactSum, weighted_sum
from fedsel_app.wire.codec import Update

SIZE = 5
NARROW = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)
WIDE = st.floats(-(2.0**60), 2.0**60)
WEIGHTS = st.one_of(st.integers(0, 10**9).map(float), st.floats(-1e6, 1e6), st.floats(1e-300, 1e-200))


@st.composite
def drawn(draw):
    """An update of any scale, of float32 or float64, whole or sparse, and its weight."""
    wide, scale = draw(st.booleans()), 2.0 ** draw(st.integers(-100, 60))
    places = draw(st.none() | st.lists(st.integers(0, SIZE - 1), unique=True).map(sorted))
    count = SIZE if places is None else len(places)
    values = [draw(WIDE if wide else NARROW) for _ in range(count)]
    array = (np.array(values, np.float64) * scale).astype(np.float64 if wide else np.float32)
    array[~np.isfinite(array)] = 1.0
    return Update(SIZE, None if places is None else np.array(places, np.uint32), array), draw(WEIGHTS)


def expected(terms):
    """The sum as fractions, where each term is rounded as the module says."""
    total = [Fraction(0)] * SIZE
    for update, weight in terms:
        term = [float(weight * value) for value in update.dense().astype(np.float64).tolist()]
        largest, exponent = max(map(abs, term)), LOWEST
        while largest >= 2.0**exponent:
            exponent += STEP
        finest = Fraction(2) ** (exponent - BITS - (BITS + 1 if update.values.itemsize > 4 else 0))
        total = [one + round(Fraction(value) / finest) * finest for one, value in zip(total, term, strict=True)]
    return total


def exactly(found):
    """The value of an exact sum, without a last rounding."""
    total = [Fraction(0)] * found.size
    for exponent, multiples in found.multiples.items():
        total = [
            one + number * Fraction(2) ** (exponent - BITS)
            for one, number in zip(total, multiples.tolist(), strict=True)
        ]
    return total


def summed(terms):
    found = ExactSum(SIZE)
    found.add([update for update, _ in terms], [weight for _, weight in terms])
    return found


@given(st.lists(drawn(), max_size=6))
def test_each_term_is_rounded_once_and_the_sum_not_at_all(terms):
    found = summed(terms)
    assert exactly(found) == expected(terms)
    assert found.count == len(terms)
    if len(found.multiples) == 1:
        assert found.total().tolist() == [float(number) for number in exactly(found)]


@given(st.lists(drawn(), min_size=1, max_size=6), st.randoms(use_true_random=False), st.integers(1, 4))
def test_any_order_and_grouping_has_the_same_bits(terms, rng: random.Random, workers):
    whole, shuffled = summed(terms), rng.sample(terms, len(terms))
    parts = [summed(shuffled[start::workers]) for start in range(workers)]
    merged = ExactSum(SIZE)
    for part in rng.sample(parts, workers):
        merged.merge(part)
    assert merged.total().tobytes() == whole.total().tobytes()
    assert merged.count == whole.count


@given(st.lists(drawn(), min_size=1, max_size=5), drawn())
def test_a_subtracted_term_was_never_there(terms, other):
    found = summed([other, *terms])
    found.subtract(*other)
    assert exactly(found) == exactly(summed(terms))
    assert found.total().tobytes() == summed(terms).total().tobytes()
    assert found.count == len(terms)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_as_many_terms_as_are_allowed_fit_at_their_largest(sign):
    largest = np.nextafter(np.float64(2.0**16), 0.0)
    found, one = ExactSum(1), ExactSum(1)
    one.add([Update(1, None, np.array([sign * largest]))], [1.0])
    for _ in range(15):
        found.merge(one)
        one.merge(one)
    found.merge(one)
    assert found.count == MOST
    assert exactly(found)[0] == MOST * Fraction(sign * largest)
    with pytest.raises(ValueError, match="at most 65535 terms"):
        found.add([Update(1, None, np.ones(1, np.float32))], [1.0])


@pytest.mark.parametrize("precise", [False, True])
def test_a_model_of_many_parts_is_summed_as_in_one(precise):
    size, rng = 2 * PART + 7, np.random.default_rng(8)
    places = [np.flatnonzero(rng.random(size) < share).astype(np.uint32) for share in (0.3, 0.0, 0.001, 0.9)]
    places.append(np.array([0, PART - 1, PART, 2 * PART, size - 1], np.uint32))
    updates = [Update(size, where, rng.normal(size=where.size).astype(np.float32)) for where in places]
    updates.insert(2, Update(size, None, rng.normal(size=size).astype(np.float32)))
    weights = (100.0 * rng.random(len(updates))).tolist()
    plain = sum(weight * update.dense().astype(np.float64) for update, weight in zip(updates, weights, strict=True))
    found = weighted_sum(updates, weights, precise=precise)
    np.testing.assert_allclose(found, plain, rtol=0.0, atol=len(updates) * 2.0 ** -(45 if precise else 33))
    one_by_one = ExactSum(size, precise=precise)
    for update, weight in reversed(list(zip(updates, weights, strict=True))):
        one_by_one.add([update], [weight])
    assert one_by_one.total().tobytes() == found.tobytes()


def test_what_does_not_fit_is_refused():
    found, update = ExactSum(SIZE), Update(SIZE, None, np.full(SIZE, 2.0, np.float32))
    for other in (Update(SIZE + 1, None, np.ones(SIZE + 1, np.float32)), Update(1, None, np.ones(1, np.float32))):
        with pytest.raises(ValueError, match="entries"):
            found.add([other], [1.0])
        with pytest.raises(ValueError, match="entries"):
            found.merge(ExactSum(other.size))
    for weight in (2.0 ** (HIGHEST - 1), float("inf"), float("nan")):
        with pytest.raises(ValueError, match="too large"):
            found.add([update], [weight])
    assert not found.multiples
