"""Uniform cohorts: of methods that always draw them, and of the first rounds of others."""

import numpy as np
import pytest

from strategies import STRATEGIES
from strategies.testing.fakes import make_context, make_roster
from tests.support.selecting import frequencies

UNIFORM = ("random", "flexcom", "optrate", "terraform", "divfl", "fedcg", "fedcor", "fedcvr-bolt", "hics-fl")


@pytest.mark.parametrize("name", UNIFORM)
def test_the_first_cohort_is_uniform_among_the_present_of_any_size_and_speed(name):
    method = STRATEGIES[name](make_context(STRATEGIES[name].Config(), cohort=2))
    roster = make_roster(6, examples=[10, 900, 20, 300, 70, 5], available=[0, 1, 2, 4])
    roster.uplink_bits_per_s[:] = [1e6, 9e6, 2e6, 5e6, 3e6, 1e6]
    found = frequencies(method, roster, 1, 2, 600)
    np.testing.assert_allclose(found, [0.5, 0.5, 0.5, 0, 0.5, 0], atol=0.06)
