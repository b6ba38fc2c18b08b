"""Metrics of claims, against the rows of a run."""

import numpy as np
import pytest

from fedsel_app.wiring.configuration import resolve
from laboratory.claims.measured import identity, read_measured
from laboratory.claims.metrics import MEASURES, label_coverage, measured_values
from laboratory.claims.ranking import BASELINE, Ranking
from laboratory.claims.runs import AskedRun, keep, keep_failed
from simulation.workbench.comparison.run_processes import failure_reason
from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run
from tests.support.in_process import run_in_process
from tests.support.report_runs import write_run


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


def test_a_row_has_the_mean_of_the_last_ten_evaluations_at_every_budget(tmp_path):
    """Accuracies 0.01 to 0.12: after 12 rounds the last is 0.12, and 0.03 to 0.12 have the mean 0.075."""
    variants = {BASELINE: {"strategy": "random", "weighting": "uniform"}}
    made = {"strategies": (), "variants": variants, "seed_count": 1, "name": "w", "title": "w", "factors": (0.25, 1.0)}
    keys = "stable_accuracy_at_rounds", "accuracy_at_rounds"
    asked, curve = (Ranking(budgets=dict.fromkeys(of, budget), **made) for of, budget in ((keys[:1], 48), (keys, 12)))
    config = curve.configuration(curve.sides[0], 1)
    write_run(tmp_path / "run", "random", 1, [0.01 * number for number in range(1, 13)])
    keep(tmp_path / "rows", AskedRun(identity(config), config, tuple(asked.metrics)), tmp_path / "run")
    measured = read_measured(tmp_path / "rows")
    values = measured.values(curve, curve.sides[0], 1)
    assert [values[metric.column] for metric in curve.metrics] == pytest.approx([0.02, 0.075, 0.03, 0.12])
    [row] = measured.rows.values()
    assert set(row["values"]) == {metric.column for metric in asked.metrics}
    assert row["history"]["rounds"] == [*range(1, 13)]


def test_a_row_of_a_failed_run_names_no_folder_of_the_machine(tmp_path):
    (log := tmp_path / "run.log").write_text("The model diverged.\n", encoding="utf-8")
    asked = AskedRun("id", resolve({"strategy": "random"}), (MEASURES["stable_accuracy"],))
    keep_failed(tmp_path / "rows", asked, failure_reason(2, log))
    row = read_measured(tmp_path / "rows").rows["id"]
    assert (row["failed"], row["values"]) == ("The model diverged.", {"stable_accuracy": None})
    assert str(tmp_path) not in (tmp_path / "rows").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arrays", "shares"),
    [
        ({"y_train": [0, 0, 1, 1, 2, 3], "owners": [0, 0, 1, 2, 2, 3]}, [0.5, 0.75]),
        ({"y_train": [[1, 0], [0, 0], [1, 1], [0, 1]], "owners": range(4), "task": "multi-label"}, [0.5, 1.0]),
    ],
)
def test_label_coverage_by_hand(tmp_path, arrays, shares):
    """The cohorts 0 and 1, then 2 and 3, of the run's own partition; the third round has none."""
    count = len(arrays["owners"])
    x = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    np.savez(tmp_path / "data.npz", x_train=x, x_test=x, y_test=arrays["y_train"], **arrays)
    settings = {"data": "npz", "data_path": str(tmp_path / "data.npz"), "partition": "natural"}
    write_run(tmp_path / "run", "random", 1, [0.1, 0.2, 0.3], selected=[[0, 1], [2, 3], []], **settings)
    coverage = label_coverage(read_recorded_run(tmp_path / "run", "run", {}, RecordedRun))
    assert coverage[:2].tolist() == shares
    assert np.isnan(coverage[2])
