import pytest

from fedsel_app.wiring.configuration import resolve
from laboratory.claims.listing import STEP_S, expected_s


def test_the_expected_seconds_by_hand():
    # Logistic regression on 64 pixels and 10 classes: 2 x 640 operations a sample. 4 of 20 clients take 50 steps, and
    # all 20 are probed on 8 mini-batches, with 32 samples each, in each of 10 rounds.
    forward_s = 2 * 640 * 32 / 5e10
    seconds = 10 * (4 * 50 * (STEP_S + 3 * forward_s) + 20 * (STEP_S + 8 * forward_s))
    config = resolve({"strategy": "hetero-select", "cohort": 4, "rounds": 10, "device": "cpu"})
    assert expected_s(config) == pytest.approx(seconds)
