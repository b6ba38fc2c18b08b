"""The server optimisers against vectors computed elsewhere: w = 1, then the updates 0.5, -0.2, 0.3."""

import numpy as np
import pytest

from fedsel_app.config import ServerOptimizerConfig
from strategies.aggregation.server_optimizer import ServerOptimizer

UPDATES = (0.5, -0.2, 0.3)
EXPECTED = {
    "fedadam": [1.098020, 1.143784, 1.228170],
    "fedyogi": [1.098020, 1.143590, 1.227386],
    "fedadagrad": [1.009980, 1.014614, 1.023117],
}
adaptive = pytest.mark.parametrize("name", sorted(EXPECTED))


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fedadam", [1.098039, 1.143811, 1.228207]), ("fedyogi", [1.098039, 1.143617, 1.227423])],
)
def test_and_from_zero(name, expected):
    """V_0 = 0, which the settings do not offer: by the state."""
    optimizer = build(name)
    optimizer.load_state({"momentum": np.zeros(1), "second": np.zeros(1)})
    np.testing.assert_allclose(path(optimizer), expected, atol=1.5e-6)


@adaptive
def test_no_first_moment_and_a_huge_tau_is_plain_descent(name):
    optimizer = build(name, server_beta1=0.0, server_tau=1e6, server_lr=1e6)
    # sqrt(V) + tau is 2 tau at the start, as V_0 = tau^2.
    weight = 1.0
    for found, update in zip(path(optimizer), UPDATES, strict=True):
        weight += update / 2.0
        assert found == pytest.approx(weight, rel=0.02)


@pytest.mark.parametrize("name", [*sorted(EXPECTED), "momentum", "mean"])
def test_the_state_goes_on_identically(name):
    one, other = build(name), build(name)
    path(one)
    other.load_state(one.state())
    assert path(other, start=2.0) == path(one, start=2.0)


@pytest.mark.parametrize("name", [*sorted(EXPECTED), "momentum", "mean"])
def test_a_state_that_was_taken_does_not_change(name):
    optimizer = build(name)
    path(optimizer)
    state = optimizer.state()
    before = {key: values.copy() for key, values in state.items()}
    path(optimizer)
    for key, values in state.items():
        np.testing.assert_array_equal(values, before[key])
