"""FlexCom: cohort members finish together."""

import numpy as np

from fedsel_app.config import Settings
from strategies.methods.flexcom import FlexCom
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster
from tests.support.selecting import select

SIZE = 1_000_000


def build():
    """rand-k: 32 bits a kept entry, so that the arithmetic is plain."""
    settings = {"compressor": "rand-k", "kept_fraction": 0.25}
    return FlexCom(make_context(Settings(), clients=5, size=SIZE, **settings))


def uneven_roster():
    """Full uploads take 32, 16, 8, 32 and 32 s, trainings 10, 20, 15, 12 and 60 s."""
    roster = make_roster(5)
    roster.uplink_bits_per_s[:] = [1e6, 2e6, 4e6, 1e6, 1e6]
    roster.step_s[:] = np.array([10, 20, 15, 12, 60]) / 50
    return roster


def test_the_deadline_is_the_median_finish_and_fractions_follow():
    """With a quarter kept the clients finish after 18, 24, 17, 20 and 68 s."""
    chosen = select(build(), uneven_roster(), 1, 5)
    assert chosen.components["deadline_s"].tolist() == [20.0] * 5
    np.testing.assert_allclose(chosen.kept_fractions, [10 / 32, 0.01, 5 / 8, 8 / 32, 0.01])
