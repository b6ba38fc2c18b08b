import io
import json

from rich.console import Console

from fedsel_app.records.schema import RoundRecord, as_row
from simulation.workbench.comparison.measures import EvaluatedMetric
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run
from simulation.workbench.report.drawing import plot_metric
from simulation.workbench.report.one_run import report_run
from tests.support.report_runs import write_run

ROWS = [
    as_row(RoundRecord(1, time_s=4.0, total_uplink_bytes=1_000_000, accuracy=0.3)),
    as_row(RoundRecord(2, time_s=9.0, total_uplink_bytes=1_500_000)),
    as_row(RoundRecord(3, time_s=12.0, total_uplink_bytes=2_000_000, accuracy=0.8)),
]
SUMMARY = {
    "strategy": "random",
    "seed": 3,
    "peak_accuracy": 0.87654321,
    "target_accuracy": 0.9,
    "rounds_to_target": None,
    "best_validation_round": None,
    "client_updates": 12,
    "failure_count": 0,
    "final_loss": None,
    "versions": {"numpy": "2.0"},
}


def test_a_finished_run_is_printed_from_its_files(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY), encoding="utf-8")
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    output = io.StringIO()
    report_run(tmp_path, Console(file=output, width=100))
    shown = {line.split()[0]: line.split(maxsplit=1)[1].strip() for line in output.getvalue().splitlines()}
    assert shown["peak_accuracy"] == "0.8765"
    assert shown["rounds_to_target"] == "not reached"
    assert shown["client_updates"] == "12"
    assert shown["final_loss"] == "not finite"
    assert not {"versions", "best_validation_round"} & shown.keys()
    assert shown["Run"] == f"folder: {tmp_path}"
    assert shown["Next:"] == f"fedsel report {tmp_path}"


def test_names_with_dollar_signs_are_no_formulas(tmp_path):
    """matplotlib reads `$...$` as a formula: a strange name of a method ended the report with a traceback."""
    for name in (formula := r"$\frac{$", "random"):
        write_run(tmp_path / name, "random", 1, [0.5, 0.6])
    runs = {name: (read_recorded_run(tmp_path / name, name, {}, RecordedRun),) for name in (formula, "random")}
    plot = plot_metric(Group("", runs, formula), EvaluatedMetric("accuracy", "accuracy"))
    plot.figure.savefig(io.BytesIO(), format="svg")
