"""OptRate: the error curve by hand, the spread against a linear programme."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from fedsel_app.config import Settings
from fedsel_app.wire.codec import Update
from strategies.methods.optrate import OptRate, spread, top_k_error
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select


def test_the_error_curve_by_hand():
    """Squares 16, 9, 4, 1 of 30."""
    np.testing.assert_allclose(top_k_error(dense([1, -4, 3, -2]), 4), [1, 14 / 30, 5 / 30, 1 / 30, 0], atol=1e-15)
    sparse = Update(4, np.array([1, 3], np.uint32), np.array([3, -4], np.float32))
    np.testing.assert_allclose(top_k_error(sparse, 4), [1, 9 / 25, 0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(top_k_error(dense([1, -4, 3, -2]), 2), [1, 5 / 30, 0], atol=1e-15)


@given(
    drops=st.lists(st.integers(0, 20), min_size=2, max_size=6).filter(any),
    importance=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    average=st.floats(0.0, 1.0),
    least=st.sampled_from([0.01, 0.1, 0.3]),
)
def test_the_spread_is_optimal(drops, importance, average, least):
    """linprog: theta_t and err_t above every line through two neighbouring points of the curve."""
    falls = np.sort(drops)[::-1] / sum(drops)
    error = np.concatenate([[1.0], 1.0 - np.cumsum(falls)])
    pieces, rounds = len(drops), len(importance)
    budget = max(average, least) * rounds
    theta = spread(np.array(importance, float), error, budget, least)
    assert ((theta >= least - 1e-12) & (theta <= 1 + 1e-12)).all()
    assert theta.sum() == pytest.approx(budget)

    lines = [(-falls[g] * pieces, error[g] + falls[g] * g) for g in range(pieces)]
    rows, bounds = [], []
    for t in range(rounds):
        for slope, height in lines:
            row = np.zeros(2 * rounds)
            row[t], row[rounds + t] = slope, -1.0
            rows.append(row)
            bounds.append(-height)
    solution = linprog(
        np.concatenate([np.zeros(rounds), importance]),
        A_ub=np.array(rows),
        b_ub=bounds,
        A_eq=[np.concatenate([np.ones(rounds), np.zeros(rounds)])],
        b_eq=[budget],
        bounds=[(least, 1.0)] * rounds + [(None, None)] * rounds,
    )
    found = float(np.dot(importance, np.interp(theta, np.linspace(0, 1, pieces + 1), error)))
    assert found == pytest.approx(solution.fun, abs=1e-9)


def build(**training):
    return OptRate(make_context(Settings(), clients=6, size=1000, kept_fraction=0.2, **training))


def heavy_tailed(seed=0):
    values = np.random.default_rng(seed).standard_normal(1000) ** 3
    return outcome(RoundInfo(1, 10), [0, 3], [dense(values), dense(values[::-1])])


def test_the_first_round_is_dense_and_the_others_share_the_budget():
    method, roster = build(), make_roster(6)
    assert select(method, roster, 1, 3).kept_fractions.tolist() == [1.0] * 3
    method.update(heavy_tailed())
    fractions = [select(method, roster, number, 3).kept_fractions for number in range(2, 11)]
    assert all(np.ptp(of_round) == 0 for of_round in fractions)
    later = np.array([of_round[0] for of_round in fractions])
    assert later.sum() == pytest.approx(9 * 0.2)
    assert (np.diff(later) < 0).all()  # the learning rate falls, and with it what compression spoils


def test_rounds_that_bring_nothing_measure_nothing():
    method = build()
    method.update(outcome(RoundInfo(1, 10), [], [], failed=[1, 2]))
    method.update(outcome(RoundInfo(2, 10), [1], [dense(np.zeros(1000))]))
    assert method.fraction(RoundInfo(3, 10)) == 1.0
    method.update(replace(heavy_tailed(), round_info=RoundInfo(3, 10)))
    assert sum(method.fraction(RoundInfo(t, 10)) for t in range(4, 11)) == pytest.approx(7 * 0.2)
