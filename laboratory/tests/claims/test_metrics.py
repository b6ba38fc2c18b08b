"""Metrics of claims, against the rows of a run."""

import numpy as np

from laboratory.claims.metrics import MEASURES, measured_values
from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run
from tests.support.in_process import run_in_process


def test_client_updates_to_the_best_validation_round(tmp_path):
    """ISP's measure: every client that trained, until the loss on the clients' own test parts is smallest."""
    settings = {"strategy": "random", "clients": 6, "cohort": 2, "local_steps": 4, "lr": 0.5, "momentum": 0.0}
    settings |= {"holdout_fraction": 0.2, "client_eval": True, "compressor": "none"}
    _, rows = run_in_process(tmp_path / "run", rounds=6, **settings)
    best = int(np.argmin([row["client_loss"] for row in rows]))
    metric = MEASURES["client_updates_to_best_validation"]
    found = measured_values(read_recorded_run(tmp_path / "run", "run", {}, RecordedRun), [metric])
    assert found == {metric.column: 2.0 * (best + 1)}
    assert 0 < best < 5, "the best round is neither the first nor the last"
    assert metric.of_pair(976.0, 1164.0) == np.log(1164 / 976)
