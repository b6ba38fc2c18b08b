"""Uniform cohorts: of methods that always draw them, and of the first rounds of others."""

import numpy as np
import pytest

from strategies import STRATEGIES
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, make_roster, outcome
from tests.support.selecting import frequencies, select

UNIFORM = ("random", "flexcom", "optrate", "terraform", "divfl", "fedcg", "fedcor", "fedcvr-bolt", "hics-fl")


@pytest.mark.parametrize("name", UNIFORM)
def test_the_first_cohort_is_uniform_among_the_present_of_any_size_and_speed(name):
    method = STRATEGIES[name](make_context(STRATEGIES[name].Config(), cohort=2))
    roster = make_roster(6, examples=[10, 900, 20, 300, 70, 5], available=[0, 1, 2, 4])
    roster.uplink_bits_per_s[:] = [1e6, 9e6, 2e6, 5e6, 3e6, 1e6]
    found = frequencies(method, roster, 1, 2, 600)
    np.testing.assert_allclose(found, [0.5, 0.5, 0.5, 0, 0.5, 0], atol=0.06)


@pytest.mark.parametrize("name", ["divfl", "fedcg", "hics-fl"])
def test_the_first_rounds_select_everybody_once(name):
    """Two of five: the third round is filled up."""
    method = STRATEGIES[name](make_context(STRATEGIES[name].Config(), clients=5, cohort=2))
    roster, cohorts = make_roster(5), []
    for number in (1, 2, 3):
        cohorts.append(select(method, roster, number, 2, seed=number).clients)
        roster.selections[cohorts[-1]] += 1
        updates = [dense(np.arange(12.0) * client) for client in cohorts[-1].tolist()]
        method.learn(outcome(RoundInfo(number, 10), cohorts[-1].tolist(), updates))
    assert [cohort.size for cohort in cohorts] == [2, 2, 2]
    assert set(np.concatenate(cohorts)) == set(range(5))
    assert not np.intersect1d(*cohorts[:2]).size
