"""Many clients: a round's Python calls and memory do not grow with the clients that have nothing to do with it."""

import sys
import tracemalloc

import numpy as np
import pytest

from fedsel_app.wiring.configuration import resolve
from tests.support.in_process import run_config

EXAMPLES, COHORT = 20_000, 3
SETTINGS = {
    "data": "tests.runs.test_many_clients:flat_data",
    "model": "logistic",
    "partition": "iid",
    "min-examples": 1,
}


def flat_data(config):
    """Features of so many examples that 10,000 clients have two each."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((EXAMPLES, 4)).astype(np.float32), rng.integers(0, 3, EXAMPLES)
    return {"x_train": x, "y_train": y, "x_test": x[:50], "y_test": y[:50]}


class RoundCosts:
    """Python calls and peak bytes of each round after the first."""

    def __init__(self):
        self.calls, self.peaks, self._called = [], [], 0

    def __call__(self, row):
        sys.setprofile(None)
        if row["round"] > 1:
            self.calls.append(self._called)
            self.peaks.append(tracemalloc.get_traced_memory()[1] - self._before)
        self._called = 0
        tracemalloc.start()
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]
        sys.setprofile(self._count)

    def _count(self, frame, event, argument):
        self._called += event in ("call", "c_call")


@pytest.fixture
def round_costs(tmp_path):
    def of(clients, **settings):
        costs = RoundCosts()
        settings = SETTINGS | {"clients": clients, "cohort": COHORT, "rounds": 4, "local-steps": 1} | settings
        try:
            run_config(tmp_path / str(clients), resolve(settings), on_round=costs)
        finally:
            sys.setprofile(None)
            tracemalloc.stop()
        return min(costs.calls), min(costs.peaks)

    return of


def test_a_round_costs_what_it_costs_with_few_clients(round_costs):
    """From 100 clients to 10,000 a round may take a few arrays more, of 8 bytes a client, and hardly a call."""
    few_calls, few_bytes = round_costs(100, strategy="random")
    many_calls, many_bytes = round_costs(10_000, strategy="random")
    assert many_calls < 1.02 * few_calls
    assert many_bytes - few_bytes < 5 * 8 * 10_000
