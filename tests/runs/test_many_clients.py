"""Many clients: a round's Python calls and memory do not grow with the clients that have nothing to do with it."""

import os
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import load
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_model
from simulation.engines.gpu_memory import refuse_too_little
from simulation.engines.preflight import refuse_unrunnable
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


@pytest.mark.parametrize("strategy", ["fedcg", "divfl", "clustered-sampling", "hics-fl"])
def test_a_method_that_compares_every_two_clients_is_refused_where_the_memory_does_not_suffice(
    strategy, tmp_path, monkeypatch
):
    """A machine of 2 GiB: four tables of 8 bytes for every two of 10,000 clients are 3.0 GiB."""
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**19}.__getitem__)
    settings = SETTINGS | {"clients": 10_000, "cohort": COHORT, "out": str(tmp_path / "run")}
    with pytest.raises(
        ConfigError, match=rf"{strategy} compares every two.* 3\.0 GiB for 10,000 .* has 2\.0 GiB\. Lower"
    ):
        refuse_unrunnable(resolve(settings | {"strategy": strategy}))


@pytest.mark.parametrize(("workers", "share", "processes"), [(0, 0.0, 1), (3, 0.0, 4), (3, 0.5, 3)])
def test_processes_that_share_a_gpu_are_refused_where_its_memory_does_not_suffice(workers, share, processes, tmp_path):
    engine = {"engine": "ray", "workers": workers} if workers else {"engine": "inline"}
    config = resolve(SETTINGS | engine | {"client-gpus": share, "out": str(tmp_path / "run"), "device": "cpu"})
    model, dataset = make_model(config, torch.device("cpu")), load(config.data, config.run.seed)
    data = sum(array.nbytes for array in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test))
    # CUDA, the data, eight vectors of the model, and twice 32 examples, whose input logistic regression keeps.
    each = 939_524_096 + data + 32 * model.size + 2 * 32 * dataset.x_train[0].size * 4
    refuse_too_little(config, workers, model, dataset, processes * each)
    with pytest.raises(
        ConfigError, match=rf"Lower 'workers'.* {processes} processes on one GPU need about 0\.9 GiB each"
    ):
        refuse_too_little(config, workers, model, dataset, processes * each - 1)
