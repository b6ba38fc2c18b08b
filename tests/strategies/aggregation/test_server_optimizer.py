"""The server optimisers by hand and against vectors computed elsewhere, and the aggregation weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import ServerOptimizerConfig
from strategies.aggregation.server_optimizer import ServerOptimizer, aggregation_weights

UPDATES = (0.5, -0.2, 0.3)
EXPECTED = {
    "fedadam": [1.098020, 1.143784, 1.228170],
    "fedyogi": [1.098020, 1.143590, 1.227386],
    "fedadagrad": [1.009980, 1.014614, 1.023117],
}
adaptive = pytest.mark.parametrize("name", sorted(EXPECTED))


def test_momentum_by_hand():
    optimizer = ServerOptimizer(2, ServerOptimizerConfig())
    first = optimizer.step(np.array([1.0, 2.0], np.float32), np.array([0.5, -1.0]))
    np.testing.assert_array_equal(first, np.array([1.5, 1.0], np.float32))
    # M_2 = 0.5 (0.5, -1) + (1, 1) = (1.25, 0.5)
    second = optimizer.step(first, np.array([1.0, 1.0]))
    np.testing.assert_array_equal(second, np.array([2.75, 1.5], np.float32))
    # M_3 = 0.5 (1.25, 0.5) + 0
    np.testing.assert_array_equal(optimizer.step(second, np.zeros(2)), np.array([3.375, 1.75], np.float32))
    assert second.dtype == np.float32


def test_momentum_is_scaled_by_the_server_learning_rate_only_when_applied():
    optimizer = ServerOptimizer(1, ServerOptimizerConfig(server_lr=0.1, server_momentum=0.9))
    first = optimizer.step(np.zeros(1, np.float32), np.ones(1))
    np.testing.assert_allclose(first, [0.1], rtol=1e-6)
    np.testing.assert_allclose(optimizer.step(first, np.ones(1)), [0.1 + 0.19], rtol=1e-6)


def test_mean_remembers_nothing():
    optimizer = ServerOptimizer(1, ServerOptimizerConfig(server_optimizer="mean"))
    parameters = np.zeros(1, np.float32)
    for expected in (1.0, 2.0, 3.0):
        parameters = optimizer.step(parameters, np.ones(1))
        assert parameters == [expected]


def path(optimizer, updates=UPDATES, start=1.0):
    weights = np.array([start], np.float32)
    found = []
    for update in updates:
        weights = optimizer.step(weights, np.array([update]))
        found.append(float(weights[0]))
    return found


def build(name, **changed):
    return ServerOptimizer(1, ServerOptimizerConfig(server_optimizer=name, **({"server_lr": 0.1} | changed)))


@adaptive
def test_the_adaptive_optimisers_from_tau_squared(name):
    np.testing.assert_allclose(path(build(name)), EXPECTED[name], atol=1.5e-6)


def weights_of(*arguments, **options):
    weights = aggregation_weights(*arguments, **options)
    return weights.own / weights.divisor


@pytest.mark.parametrize("weighting", ["score", "method"])
def test_zero_scores_weigh_alike(weighting):
    np.testing.assert_array_equal(
        weights_of(weighting, np.zeros(4), np.ones(4), np.zeros(4), normalise=True), [0.25] * 4
    )


def test_nobody_has_no_weights():
    none = np.zeros(0)
    for weighting in ("method", "score", "examples", "uniform"):
        assert weights_of(weighting, none, none, None, normalise=True).size == 0


@given(
    st.sampled_from(["method", "score", "examples", "uniform"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**6), st.floats(0, 100)), min_size=1, max_size=20),
)
def test_weights_are_a_distribution(weighting, clients):
    scores, examples, own = np.array(clients).T
    weights = weights_of(weighting, scores, examples, own, normalise=True)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0)
