"""Staleness: the weights of late updates, and FedAsync's mixing, by hand."""

import numpy as np
import pytest

from fedsel_app.config.server import WaitingConfig
from strategies.aggregation.staleness import lag_weights, stale_step, staleness_weights

LAGS = np.array([0, 1, 3, 8])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"staleness": "constant"}, [1, 1, 1, 1]),
        ({"staleness": "polynomial"}, [1, 1 / np.sqrt(2), 1 / 2, 1 / 3]),
    ],
)
def test_the_weight_falls_with_the_lag(settings, expected):
    np.testing.assert_allclose(lag_weights(LAGS, WaitingConfig(**settings)), expected)


@pytest.mark.parametrize(("waiting", "expected"), [("buffered", [1, 0.5**0.5]), ("asynchronous", [0.5**0.5, 3**-0.5])])
def test_fedasync_counts_the_step_that_takes_the_update(waiting, expected):
    config = WaitingConfig(waiting=waiting, staleness="polynomial")
    np.testing.assert_allclose(staleness_weights(np.array([0, 1]), config), expected)


def test_a_late_update_also_brings_its_start():
    """(1, 0) + 1/4 ((3, 5) - (1, 1)) = (1.5, 1); the update in time began at the present model."""
    starts, aggregate = [np.full(2, 9, np.float32), np.array([3, 5], np.float32)], np.array([1.0, 0.0])
    found = stale_step(aggregate, np.array([0.5, 0.25]), np.array([0, 2]), starts, np.ones(2, np.float32))
    np.testing.assert_array_equal(found, [1.5, 1.0])
    np.testing.assert_array_equal(aggregate, [1.0, 0.0])
