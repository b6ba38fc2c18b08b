"""Benchmark beside the peers: equal work, and the best number of workers."""

from dataclasses import replace

import numpy as np
import pytest

from laboratory.bench.peer_tasks import PEER_TASKS, PeerTask
from laboratory.bench.peers import FEDSEL, FLOWER, PFL, PeerTime, best_of, refuse_different_models, refuse_unequal
from simulation.operations.deployment.flower_cli import DeploymentError

LENET = PEER_TASKS["100-of-100"].model
TINY = PeerTask("tiny", "this test", LENET, LENET, clients=6, cohort=3, epochs=2, batch=5, lr=0.02)


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
