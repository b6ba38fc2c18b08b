import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import RunFolder
from fedsel_app.records.schema import VERSION, RoundRecord, schedule_round
from fedsel_app.records.summary import summarize

CONFIG = {"strategy": "random", "seed": 7, "target": 0.8}
SELECTIONS = np.array([0, 2, 2, 4])


def made_up_records():
    """Four rounds, the second without an evaluation."""
    common = {"downlink_bytes": 1_500_000, "probe_bytes": 250_000, "wall_s": 0.5}
    failure = {"client": 3, "reason": "no reply"}
    first = RoundRecord(1, accuracy=0.5, round_s=10.0, uplink_bytes=100, uplink_value_bytes=1_000_000, client_updates=2)
    second = RoundRecord(2, round_s=20.0, uplink_bytes=200, uplink_value_bytes=2_000_000, client_updates=1)
    third = RoundRecord(3, accuracy=0.9, round_s=5.0, uplink_bytes=300, uplink_value_bytes=500_000, client_updates=2)
    fourth = RoundRecord(4, accuracy=0.7, round_s=1.0, uplink_bytes=400, uplink_value_bytes=500_000, client_updates=2)
    second.failures, fourth.calibration_bytes = [failure], 3_000_000
    return [replace(record, **common) for record in (first, second, third, fourth)]


FINAL = np.arange(5, dtype=np.float32), np.ones(2, np.float32)
BEST = np.arange(5, dtype=np.float32)[::-1], np.zeros(2, np.float32)


def finished(folder, **config):
    run = RunFolder(folder, CONFIG | config)
    for record in made_up_records():
        run.round(record)
    run.finish(FINAL, BEST, SELECTIONS)
    return run, json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def test_a_run_of_four_rounds_is_summed_up(tmp_path):
    _, summary = finished(tmp_path / "run")
    versions = summary.pop("versions")
    assert {"python", "fedsel", "flwr", "torch", "numpy"} <= set(versions)
    assert summary == pytest.approx(
        summary
        | {
            "version": VERSION,
            "strategy": "random",
            "seed": 7,
            "rounds": 4,
            "peak_accuracy": 0.9,
            "final_accuracy": 0.7,
            "stable_accuracy": 0.7,  # (0.5 + 0.9 + 0.7) / 3
            "stability_drop": 0.2,
            "target_accuracy": 0.8,
            "rounds_to_target": 3,
            "time_to_target_s": 35.0,
            "uplink_value_to_target_mb": 3.5,
            "uplink_to_target_mb": 0.0006,
            "client_updates_to_target": 5,
            "best_validation_round": None,
            "client_updates_to_best_validation": None,
            "best_validation_accuracy": None,
            "best_validation_loss": None,
            "time_s": 36.0,
            "uplink_value_mb": 4.0,
            "uplink_mb": 0.001,
            "downlink_mb": 6.0,
            "probe_mb": 1.0,
            "calibration_mb": 3.0,
            "client_updates": 7,
            "failure_count": 1,
            "wall_s": 2.0,
            "selection_count_min": 0,
            "selection_count_max": 4,
            "selection_count_std": 2**0.5,  # of 0, 2, 2, 4 around 2
            "model_parameters": 5,
        }
    )


def test_the_stable_accuracy_is_that_of_the_last_ten_evaluations():
    rows = [{"round": n, "accuracy": 0.0 if n <= 2 else n / 100, "failures": []} for n in range(1, 13)]
    summary = summarize(rows, CONFIG, np.zeros(1, np.int64), 1)
    assert summary.stable_accuracy == pytest.approx(0.075)  # the mean of 0.03 ... 0.12


def test_the_final_values_are_those_of_the_last_evaluation_finite_or_not():
    rows = [{"round": 1, "r2": 0.5, "loss": 1.0, "score": "r2"}, {"round": 2, "loss": math.inf}, {"round": 3}]
    summary = summarize([row | {"failures": []} for row in rows], CONFIG, np.zeros(1, np.int64), 1)
    assert (summary.peak_accuracy, summary.final_loss) == (0.5, math.inf)
    assert math.isnan(summary.final_accuracy)


def test_the_best_validation_round_is_the_first_with_the_smallest_client_loss():
    """The updates until then include rounds without an evaluation: 8 of an intermediate round, and 2, 2, 3 and 4."""
    counts, losses = (10, 2, 3, 4, 5), (2.0, None, 1.5, 1.25, 1.25)
    nothing = dict.fromkeys(("time_s", "total_uplink_bytes", "total_uplink_value_bytes"), 0)
    rows = [nothing | {"round": n, "failures": [], "client_updates": count} for n, count in enumerate(counts, start=1)]
    for row, loss in zip(rows, losses, strict=True):
        row |= {} if loss is None else {"client_loss": loss, "accuracy": row["round"] / 10, "loss": 2 * loss}
    summary = summarize(rows, CONFIG | {"target": 0.25}, np.zeros(1, np.int64), 1)
    assert (summary.best_validation_round, summary.client_updates_to_best_validation) == (4, 19)
    assert (summary.best_validation_accuracy, summary.best_validation_loss) == (0.4, 2.5)
    assert (summary.rounds_to_target, summary.client_updates_to_target) == (3, 15)


OWN_ROUNDS = [
    {"round": 1, "method_round": 1, "iteration": 1, "time_s": 1.0, "total_uplink_bytes": 10},
    {"round": 2, "method_round": 1, "iteration": 2, "time_s": 2.0, "total_uplink_bytes": 14, "accuracy": 0.4},
    {"round": 3, "method_round": 2, "iteration": 1, "time_s": 3.0, "total_uplink_bytes": 24},
    {"round": 4, "method_round": 2, "iteration": 2, "time_s": 4.0, "total_uplink_bytes": 28, "accuracy": 0.6},
]
"""Rows of a method that has rounds of its own."""


def test_rounds_are_the_methods_own_and_costs_are_all():
    rows = [row | {"failures": [], "total_uplink_value_bytes": row["total_uplink_bytes"]} for row in OWN_ROUNDS]
    summary = summarize(rows, {"strategy": "own", "seed": 1, "target": 0.5}, np.ones(3, np.int64), 7)
    assert (summary.rounds, summary.rounds_to_target) == (2, 2)
    assert (summary.time_to_target_s, summary.uplink_to_target_mb) == (4.0, 28e-6)
    assert [schedule_round(row) for row in OWN_ROUNDS] == [1, 1, 2, 2]
    assert schedule_round({"round": 7}) == 7


def test_a_target_that_is_never_reached_is_null(tmp_path):
    _, summary = finished(tmp_path / "run", target=0.95)
    keys = ["rounds_to_target", "time_to_target_s", "uplink_value_to_target_mb", "uplink_to_target_mb"]
    assert [summary[key] for key in [*keys, "client_updates_to_target"]] == [None] * 5
    assert summary["peak_accuracy"] == 0.9


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_what_is_not_a_number_becomes_null(tmp_path):
    """A run that was never evaluated, and losses that were not measured."""
    run = RunFolder(tmp_path / "run", CONFIG)
    run.round(RoundRecord(1, probe_losses=[float("nan"), 1.0], loss=float("inf")))
    run.finish(FINAL, BEST, SELECTIONS)
    row = strict((tmp_path / "run" / "rounds.jsonl").read_text(encoding="utf-8"))
    assert (row["probe_losses"], row["loss"]) == ([None, 1.0], None)
    summary = strict((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert [summary[f"{which}_accuracy"] for which in ("peak", "final", "stable")] == [None] * 3


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    folder = tmp_path / "file" / "run"
    with pytest.raises(ConfigError) as error:
        RunFolder(folder, CONFIG)
    assert str(error.value).startswith(f"The run folder {folder} cannot be written: ")
    assert str(error.value).endswith("Choose another 'out'.")
