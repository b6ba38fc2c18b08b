"""Benchmark beside the peers: equal work, the best number of workers, and a peer that is not there."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from laboratory.bench.peer_tasks import PEER_TASKS, PeerRun, PeerTask
from laboratory.bench.peers import (
    FEDSEL,
    FLOWER,
    PFL,
    PeerTime,
    best_of,
    compare_models,
    refuse_different_models,
    refuse_unequal,
)
from simulation.operations.deployment.flower_cli import DeploymentError

INSTALLED = [FEDSEL, FLOWER] + ([PFL] if find_spec("pfl") else [])
LENET = PEER_TASKS["100-of-100"].model
TINY = PeerTask("tiny", "this test", LENET, LENET, clients=6, cohort=3, epochs=2, batch=5, lr=0.02)


def images(folder):
    """Two classes of 16x16 images, bright and dark: 60 to train on, 20 to test."""
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in {"train": 60, "test": 20}.items():
        labels = rng.integers(2, size=count)
        arrays[f"x_{part}"] = (rng.integers(60, size=(count, 16, 16)) + 150 * labels[:, None, None]).astype(np.uint8)
        arrays[f"y_{part}"] = labels
    np.savez(folder / "images.npz", **arrays)
    return str(folder / "images.npz")


def measured(contender, workers, median_s, examples=250, loss=2.0):
    return PeerTime("task", contender, workers, median_s, median_s, 1.0, examples, loss)


def test_the_best_number_of_workers_counts_and_fedsel_is_the_unit():
    times = [measured(PFL, 1, 3.0), measured(FEDSEL, 1, 4.0), measured(FEDSEL, 2, 2.0), measured(PFL, 2, 5.0)]
    assert [(one.contender, one.workers, one.of_fedsel) for one in best_of(times)] == [(FEDSEL, 2, 1.0), (PFL, 1, 1.5)]


@pytest.mark.parametrize("changed", [{"examples": 200}, {"loss": 2.3}, {"loss": float("nan")}])
def test_unequal_work_is_refused(changed):
    equal = measured(FEDSEL, 1, 1.0)
    refuse_unequal([equal, replace(equal, contender=PFL, loss=2.1)])
    with pytest.raises(DeploymentError, match=r"did not do the same work: fedsel 250 examples to loss 2\.000, "):
        refuse_unequal([equal, replace(equal, contender=FLOWER, **changed)])


def test_models_that_differ_by_more_than_rounding_are_refused():
    start, ours = np.zeros(4, np.float32), np.array([3, 0, 4, 0], np.float32)
    nearly = ours + np.float32(1e-3)
    # |(1e-3, ...)| = 2e-3 of |(3, 0, 4, 0)| = 5
    assert refuse_different_models(TINY, {FEDSEL: ours, PFL: nearly}, start) == pytest.approx(4e-4, rel=1e-3)
    for model in (ours * np.float32(1.01), np.full(4, np.nan, np.float32)):
        with pytest.raises(DeploymentError, match=r"tiny do not do the same work.* untouched Flower's by (1\.00|nan)%"):
            refuse_different_models(TINY, {FEDSEL: ours, FLOWER: model}, start)


@pytest.mark.slow
def test_contenders_end_with_the_same_model_where_nothing_is_drawn(tmp_path):
    data = PeerRun(TINY, images(tmp_path), rounds=1, threads=1, workers=1).data
    assert compare_models(INSTALLED, TINY, data) < 1e-4
