"""Uniform cohorts: of methods that always draw them, and of the first rounds of others."""

import numpy as np
import pytest

from fedsel_app.config import RunConfig
from strategies import STRATEGIES
from strategies.methods.fedcor import FedCor, FedCorConfig
from strategies.methods.fedcvr_bolt import FedCVRBolt, FedCVRBoltConfig
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import frequencies, select

UNIFORM = ("random", "flexcom", "optrate", "terraform", "divfl", "fedcg", "fedcor", "fedcvr-bolt", "hics-fl")
FIRST_PASS = 4
"""Rounds in which 3 of 10 clients each are all selected once."""


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


def test_rounds_of_uniform_selection_of_every_method():
    run = RunConfig(clients=10, cohort=3, rounds=40)
    found = {name: method.uniform_rounds(method.Config(), run) for name, method in STRATEGIES.items()}
    expected = {"fedcor": 16, "fedcvr-bolt": 30, "delta": 1}
    expected |= dict.fromkeys(("divfl", "hics-fl", "fedcg"), FIRST_PASS)
    assert {name: rounds for name, rounds in found.items() if rounds} == expected


def test_they_follow_the_settings():
    run = RunConfig(clients=10, cohort=3, rounds=40)
    assert FedCor.uniform_rounds(FedCorConfig(warmup=2), run) == 3
    assert FedCVRBolt.uniform_rounds(FedCVRBoltConfig(warmup_rounds=0), run) == 0
