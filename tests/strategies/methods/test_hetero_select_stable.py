"""HeteRo-Select for stability, every component by hand."""

from math import exp, log

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strategies.methods.hetero_select_stable import (
    HeteroSelectStable,
    HeteroSelectStableConfig,
    cooling,
    fairness,
    label_divergence,
    momentum,
    norm_factor,
    staleness,
)
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import frequencies, select

NAN = np.nan


def build(**settings):
    return HeteroSelectStable(make_context(HeteroSelectStableConfig(**settings), clients=3, size=2))


def labelled_roster(losses=(1.0, 2.0, 3.0), **arguments):
    roster = make_roster(3, losses=losses, **arguments)
    roster.label_counts = np.array([[10, 0], [0, 5], [3, 3]])
    return roster


def test_divergence_of_opposite_and_of_average_labels():
    """P_avg is (1/2, 1/2). JS((1, 0), (1/2, 1/2)) = (log(4/3) + 1/2 log(2/3) + 1/2 log 2) / 2."""
    expected = (log(4 / 3) + log(2 / 3) / 2 + log(2) / 2) / 2
    found = label_divergence(np.array([[10, 0], [0, 5], [3, 3], [0, 0]]))
    np.testing.assert_allclose(found, [expected, expected, 0, 0], atol=1e-15)
    np.testing.assert_allclose(label_divergence(np.array([[1, 0], [0, 1]])), [expected, expected])
    assert label_divergence(np.zeros((2, 0), int)).tolist() == [0, 0]
    assert label_divergence(np.zeros((2, 3), int)).tolist() == [0, 0]


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=6))
def test_divergence_is_between_zero_and_log_two(counts):
    found = label_divergence(np.array(counts))
    assert (found >= 0).all()
    assert (found <= log(2) + 1e-12).all()


def test_momentum_by_hand():
    before = np.array([2.0, 2.0, 2.0, NAN, 1.0, 0.0, 0.0, 1e-320, 1e300])
    after = np.array([1.0, 2.0, 3.0, 1.0, NAN, 0.0, 1.0, 1e300, 0.0])
    expected = [2 / (1 + exp(-5 * m)) - 0.5 for m in (0.5, 0, -0.5, 0, 0, 0)] + [-0.5, -0.5, 2 / (1 + exp(-5)) - 0.5]
    np.testing.assert_allclose(momentum(before, after), expected)
    # A loss that falls from -2 to -3 falls by half of its size, and from 0 to -1 by more than can be told.
    expected = [2 / (1 + exp(-5 * m)) - 0.5 for m in (0.5, -0.5)] + [1.5]
    np.testing.assert_allclose(momentum(np.array([-2.0, -2.0, 0.0]), np.array([-3.0, -1.0, -1.0])), expected)


def test_fairness_staleness_and_norm_by_hand():
    np.testing.assert_allclose(fairness(np.array([0, 2, 4]), 0.3), [1, 1.15**-2, 1.3**-2])
    assert fairness(np.zeros(2, int), 0.3).tolist() == [1, 1]
    np.testing.assert_allclose(
        staleness(np.array([0, 29, 30]), 31, 0.7), [1 + 0.7 * log(21), 1 + 0.7 * log(3), 1 + 0.7 * log(2)]
    )
    # Of squares 1 and 3 the mean is 2: r = 1/2 and 3/2.
    expected = [1 - 0.5 * (2 / (1 + exp(-3 * r)) - 1) for r in (0.5, 1.5)]
    np.testing.assert_allclose(norm_factor(np.array([1.0, NAN, 3.0]), 0.5), [expected[0], 1, expected[1]])
    np.testing.assert_allclose(norm_factor(np.array([0.01, NAN, 0.03]), 0.5), [expected[0], 1, expected[1]])
    assert norm_factor(np.array([0.0, NAN]), 0.5).tolist() == [1, 1]
    assert norm_factor(np.array([NAN]), 0.5).tolist() == [1]
    assert [cooling(number, 100) for number in (0, 50, 100, 300)] == [1, 0.75, 0.5, 0.5]


def after_a_round(**settings):
    """Losses 4, 2, 3 in round 1, client 1 trained; now round 2 with losses 1, 2, 3."""
    method = build(**settings)
    method.whole_roster = labelled_roster([4.0, 2.0, 3.0])
    method.update(outcome(RoundInfo(1, 10), [1], [dense([3, 4])]))
    roster = labelled_roster()
    roster.selections[1] = roster.last_selected[1] = 1
    return method, roster


def expected_parts():
    skew = (log(4 / 3) + log(2 / 3) / 2 + log(2) / 2) / 2 * 2 * 0.99
    return {
        "loss": [0, 0.5, 1],
        "diversity": [skew, skew, 0],
        "momentum": [2 / (1 + exp(-5 * 0.75)) - 0.5, 0.5, 0.5],
        "fairness": [1, 1.3**-2, 1],
        "staleness": [1 + 0.7 * log(3), 1 + 0.7 * log(2), 1 + 0.7 * log(3)],
        "norm": [1, 1 - 0.5 * (2 / (1 + exp(-3)) - 1), 1],
    }


def test_the_factors_of_a_second_round():
    method, roster = after_a_round()
    found = method.factors(roster, RoundInfo(2, 10))
    for name, values in expected_parts().items():
        np.testing.assert_allclose(found[name], values, err_msg=name)


def test_additive_and_multiplicative_scores():
    parts = {name: np.array(values) for name, values in expected_parts().items()}
    method, roster = after_a_round()
    shifted = parts | {name: parts[name] - 1 for name in ("fairness", "staleness", "norm")}
    expected = [sum(shifted[name][k] for name in parts) for k in range(3)]
    np.testing.assert_allclose(method.score(method.factors(roster, RoundInfo(2, 10))), expected)
    method, roster = after_a_round(combination="multiplicative")
    expected = [np.prod([values[k] for values in parts.values()]) for k in range(3)]
    np.testing.assert_allclose(method.score(method.factors(roster, RoundInfo(2, 10))), expected, atol=1e-15)


def test_clients_that_do_not_differ_have_no_loss_component_and_score_one():
    method = build()
    roster = labelled_roster([2.0] * 3)
    roster.label_counts[:] = 5
    selection = select(method, roster, 1, 3)
    assert selection.components["loss"].tolist() == [0, 0, 0]
    assert selection.scores.tolist() == [1, 1, 1]


def test_draws_follow_the_softmax():
    method, roster = after_a_round(temperature=0.7)
    odds = np.exp(method.score(method.factors(roster, RoundInfo(2, 10))) / (0.7 * 0.99))
    np.testing.assert_allclose(frequencies(method, roster, 2, 1, 1500), odds / odds.sum(), atol=0.04)


def test_weights_are_equal_and_scores_not_negative():
    method, roster = after_a_round()
    selection = select(method, roster, 2, 3)
    assert selection.weights.tolist() == [1, 1, 1]
    assert selection.scores.min() == 0
