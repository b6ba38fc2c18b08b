"""DELTA: probabilities by the reference vector, unbiasedness by enumeration."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import TrainingConfig
from fedsel_app.messages.scalars import Report
from strategies.methods.delta import Delta, DeltaConfig, mean_gradient, scores_by_diversity, shared_out
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select, selections

PLAIN = TrainingConfig(momentum=0.0, lr=0.5, lr_decay=0.0, local_steps=4)


def build(**settings):
    return Delta(make_context(DeltaConfig(**settings), clients=5, size=2, training=PLAIN))


def outcome_of(clients, vectors, sigma, number=1):
    """A round whose clients had mean gradients `vectors`: updates -lr x steps x gradient = -2 gradient."""
    updates = [dense([-2.0 * x for x in vector]) for vector in vectors]
    reports = {Report.GRADIENT_DEVIATION: np.array(sigma, float)}
    return outcome(RoundInfo(number, 10), clients, updates, local_steps=[4] * len(updates), reports=reports)


def learnt(method, *outcomes):
    method.whole_roster = make_roster(5)
    for one in outcomes:
        method.update(one)
    return method


def test_the_reference_probabilities():
    """The mean gradient is (0, 2/3), so zeta^2 = 13/9, 1/9, 10/9; r = sqrt(.8 zeta^2 + .2 sigma^2) = sqrt(1.205556),
    sqrt(.288889), sqrt(1.688889) = 1.097978, .537484, 1.299573, over their sum 2.935034."""
    gradients = [np.array(g, float) for g in [(1, 0), (0, 1), (-1, 1)]]
    scores = scores_by_diversity(gradients, np.array([0.5, 1, 2]), 0.8, 0.2)
    np.testing.assert_allclose(scores / scores.sum(), [0.374094, 0.183127, 0.442779], atol=1e-6)


def test_a_round_moves_probability_among_its_participants_only():
    method = learnt(build(), outcome_of([0, 2, 3], [(1, 0), (0, 1), (-1, 1)], [0.5, 1, 2]))
    expected = np.array([0.374094 * 0.6, 0.2, 0.183127 * 0.6, 0.442779 * 0.6, 0.2])
    np.testing.assert_allclose(method.state()["probabilities"], expected, atol=1e-6)


def test_a_round_at_learning_rate_0_changes_nothing():
    method = Delta(make_context(DeltaConfig(), clients=5, size=2, lr_decay=1.0))
    learnt(method, outcome_of([0, 2], [(1, 0), (90, 1)], [0, 1], number=10))
    np.testing.assert_array_equal(method.state()["probabilities"], 0.2)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=4))
def test_sharing_out_keeps_the_total(scores):
    p = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    found = shared_out(p, np.arange(len(scores)), np.array(scores))
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    np.testing.assert_array_equal(found[len(scores) :], p[len(scores) :])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_constant_gradient_is_recovered_from_heavy_ball_steps(momentum):
    gradient, moved, velocity = np.array([0.3, -2.0]), np.zeros(2), np.zeros(2)
    for _ in range(7):
        velocity = momentum * velocity + gradient
        moved -= 0.05 * velocity
    effective_steps = TrainingConfig(momentum=momentum).effective_steps(7)
    np.testing.assert_allclose(mean_gradient(moved.astype(np.float32), effective_steps, 0.05), gradient, rtol=1e-6)


def test_the_mean_weight_is_the_share_of_examples():
    """Enumerating all draws with replacement: E[sum of a client's weights] = omega_i, also over those available."""
    method = learnt(build(), outcome_of([0, 2, 3], [(1, 0), (0, 1), (-1, 1)], [0.5, 1, 2]))
    roster = make_roster(5, examples=[10, 20, 30, 40, 50], available=[0, 2, 3, 4])
    p, omega, count = method.probabilities(roster), np.array([10, 30, 40, 50]) / 130, 3
    assert p.sum() == pytest.approx(1)
    weight_of_draw = {}
    for selection in selections(method, roster, 2, count, 200):
        for client, weight in zip(selection.clients.tolist(), selection.weights.tolist(), strict=True):
            weight_of_draw.setdefault(client, set()).add(round(weight, 12))
    unit = {client: min(weights) for client, weights in weight_of_draw.items()}
    mean = np.zeros(4)
    for drawn in product(range(4), repeat=count):
        for position in drawn:
            mean[position] += np.prod(p[list(drawn)]) * unit[[0, 2, 3, 4][position]]
    np.testing.assert_allclose(mean, omega, atol=1e-9)


def test_weights_are_used_as_they_are_and_multiply_with_repeats():
    method = build()
    roster = make_roster(5, examples=[100, 200, 300, 200, 200])
    totals = []
    for selection in selections(method, roster, 1, 3, 300):
        assert not selection.normalise
        totals.append(selection.weights.sum())
        multiples = selection.weights / (roster.examples[selection.clients] / 1000 / (3 * 0.2))
        np.testing.assert_allclose(multiples, np.round(multiples))
        assert round(multiples.sum()) == 3
    assert np.mean(totals) == pytest.approx(1, abs=0.03)


def test_distinct_draws_give_exactly_m():
    method = learnt(build(draws="distinct"), outcome_of([0, 2], [(1, 0), (90, 1)], [0, 0]))
    assert all(select(method, make_roster(5), 2, 4, seed).clients.size == 4 for seed in range(20))


def test_a_client_of_no_interest_keeps_the_uniform_share():
    method = learnt(build(), outcome_of(range(5), [(1, 0), (-1, 0), (0, 1), (0, -1), (0, 0)], [0] * 5))
    np.testing.assert_allclose(method.probabilities(make_roster(5))[4], 0.01)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("draws", ["replacement", "distinct"])
def test_everybody_where_few_are_available(draws, count):
    roster = make_roster(5, available=[1, 4], examples=[1, 30, 1, 1, 10])
    for selection in selections(build(draws=draws), roster, 1, count, 20):
        assert selection.clients.tolist() == [1, 4]
        np.testing.assert_allclose(selection.weights, [0.75, 0.25])


def test_small_scores_share_out_too_and_scores_of_zero_change_nothing():
    """Clients 0 and 2 have .6 together: .1 / .4 and .3 / .4 of it."""
    p = np.array([0.5, 0.4, 0.1])
    np.testing.assert_allclose(shared_out(p, np.array([0, 2]), np.array([0.1, 0.3])), [0.15, 0.4, 0.45])
    np.testing.assert_allclose(shared_out(p, np.array([0, 2]), np.zeros(2)), p)
