"""Buffers in a secure sum: the numbers of two statistics by hand, and the mean that their sum gives."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.secure_sums.buffers import FLOOR, BufferSection
from fedsel_app.wire.entries import RoundEntries
from fedsel_app.wire.ring import LOWEST, PLACES, RINGS, from_ring, largest, to_ring

PAIR = np.array([False, True])
"""A mean and its variance."""


def section(start, variances=PAIR, exponent=0, bits=8, clients=10, full_weight=0):
    return BufferSection(np.array(start), variances, exponent, RoundEntries(None, bits, 0, clients, full_weight))


@pytest.mark.parametrize(
    ("bits", "clients", "base", "digits"),
    [
        *((8, 10, 25, 4), (8, 100, 3, 12), (16, 10, 6_553, 2), (16, 1000, 65, 3)),
        *((24, 10, 1_677_721, 1), (32, 1000, 4_294_967, 1)),
    ],
)
def test_digits_of_each_ring(bits: int, clients: int, base: int, digits: int) -> None:
    """25^4 = 390,625, 3^12 = 531,441, 6,553^2 and 65^3 = 274,625 are at least 2^18."""
    found = section([0.0, 1.0], bits=bits, clients=clients)
    assert (found.base, found.digits, found.size) == (base, digits, 2 * digits + PLACES)


def test_numbers_by_hand() -> None:
    """At e = 0 the grid is 2^-17: a mean that rose by 1/4 of its deviation, and a variance that fell by 1/2 of itself.

    32,768 = -7 + 11 25 + 2 25^2 + 2 25^3, and -65,536 = -11 + 4 25 - 5 25^2 - 4 25^3. The largest change is 2^-1.
    """
    whole = section([3.0, 4.0 - FLOOR])
    sent = np.array([3.5, 2.0 - FLOOR])
    numbers = whole.numbers(sent, 10)
    assert numbers[:8].reshape(4, 2).T.tolist() == [[-7, 11, 2, 2], [-11, 4, -5, -4]]
    assert np.flatnonzero(numbers[8:]).tolist() == [0 - LOWEST]
    still = whole.numbers(whole.start, 10)
    assert not still[:8].any()
    np.testing.assert_allclose(whole.mean(numbers + still, 2.0), [3.25, 3.0 - FLOOR], rtol=1e-12)


def test_a_client_with_a_third_of_the_examples_counts_a_third() -> None:
    """The one with 10 of 30 examples moves the mean by 1/3 of 1 / (1 + 1/3)."""
    weighed = section([0.0, 1.0 - FLOOR], full_weight=30)
    total = weighed.numbers(np.array([0.5, 1.0 - FLOOR]), 10) + weighed.numbers(weighed.start, 30)
    np.testing.assert_allclose(weighed.mean(total, 4 / 3), [0.125, 1.0 - FLOOR], atol=1e-4)


def test_one_client_moves_a_statistic_by_less_than_twice_the_range() -> None:
    """Whatever it sends: the server cuts a sum down to what ten clients may send. A variance stays above 0."""
    whole = section([0.0, 1.0 - FLOOR], exponent=-1)
    numbers = np.full(whole.size, -10 * largest(8, 10))
    mean, variance = whole.mean(numbers, 10.0)
    assert -1.0 < mean < -0.5
    assert variance == pytest.approx(1.0 - FLOOR + mean)
    assert whole.numbers(np.array([-1e30, 0.0]), 1)[:8].reshape(4, 2).T.tolist() == [[-12] * 4, [-12] * 4]
    assert section([0.0, 1.0], exponent=5).mean(numbers, 10.0)[1] == 0.0


@given(st.sampled_from(RINGS), st.integers(1, 31), st.integers(0, 2**32), st.integers(-30, 10))
def test_the_mean_is_that_of_the_clipped_multiples(bits: int, clients: int, seed: int, exponent: int) -> None:
    """In exact fractions, for two pairs and a buffer that is no statistic. Each sum of digits stays in the ring."""
    rng = np.random.default_rng(seed)
    start = np.array([0.3, 2.0, -1.0, 0.5, 7.0], np.float32)
    whole = section(start, np.array([False, True] * 2), exponent, bits, clients)
    scales = [np.sqrt(2.0 + FLOOR), 2.0 + FLOOR, np.sqrt(0.5 + FLOOR), 0.5 + FLOOR, 1.0]
    most = (whole.base**whole.digits - 1) // 2
    grid = Fraction(2) ** (exponent - (most.bit_length() - 1))
    total, exact = np.zeros(whole.size, np.uint32), [Fraction(0)] * 5
    for _ in range(clients):
        sent = (start + np.abs(rng.normal(size=5)) * 2.0**exponent).astype(np.float32)
        total = to_ring(total + to_ring(whole.numbers(sent, 1), bits), bits)
        moved = (sent.astype(np.float64) - start) / scales
        multiples = [max(-most, min(most, round(Fraction(float(each)) / grid))) for each in moved]
        exact = [before + multiple for before, multiple in zip(exact, multiples, strict=True)]
    found = (whole.mean(from_ring(total, bits), float(clients)) - start) / scales
    np.testing.assert_allclose(found, [float(each * grid / clients) for each in exact], rtol=1e-6, atol=1e-12)
