"""Weighted random selection, and the sequential draws that several methods share."""

import numpy as np
import pytest

from fedsel_app.config import Settings
from strategies.methods.random_weighted import RandomWeighted
from strategies.selection_math.sampling import weighted_draws
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster
from tests.support.selecting import frequencies, select, sequences


def test_orders_have_the_probabilities_of_sequential_draws():
    weights, draws = np.array([5.0, 3.0, 2.0]), 6000
    rng = np.random.default_rng(0)
    found = [tuple(weighted_draws(weights, 3, rng).tolist()) for _ in range(draws)]
    for sequence, expected in sequences(weights, 3):
        assert found.count(sequence) / draws == pytest.approx(expected, abs=4 * np.sqrt(expected / draws))


def test_weight_zero_comes_last_in_random_order():
    weights, rng = np.array([0.0, 1e-300, 0.0, 1e300]), np.random.default_rng(0)
    orders = [weighted_draws(weights, 4, rng).tolist() for _ in range(200)]
    assert all(set(order[:2]) == {1, 3} for order in orders)
    assert {tuple(order[2:]) for order in orders} == {(0, 2), (2, 0)}
    assert sorted(weighted_draws(np.zeros(5), 5, rng).tolist()) == [0, 1, 2, 3, 4]
    assert weighted_draws(np.zeros(0), 0, rng).size == 0


def test_inclusion_follows_size_and_weights_are_equal():
    method = RandomWeighted(make_context(Settings(), clients=4))
    roster = make_roster(4, examples=[60, 999, 30, 10], available=[0, 2, 3])
    assert select(method, roster, 1, 2).weights.tolist() == [1.0, 1.0]
    expected = np.zeros(4)
    for sequence, probability in sequences([60, 30, 10], 2):
        expected[[[0, 2, 3][position] for position in sequence]] += probability
    np.testing.assert_allclose(frequencies(method, roster, 1, 2, 3000), expected, atol=0.04)
