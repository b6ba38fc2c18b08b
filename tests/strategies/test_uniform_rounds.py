"""Rounds of uniform selection at the start of each method."""

from fedsel_app.config import RunConfig
from strategies import STRATEGIES
from strategies.methods.fedcor import FedCor, FedCorConfig
from strategies.methods.fedcvr_bolt import FedCVRBolt, FedCVRBoltConfig

FIRST_PASS = 4
"""Rounds in which 3 of 10 clients each are all selected once."""


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
