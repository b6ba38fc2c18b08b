"""Reports of runs whose score is not the accuracy: it has its own name everywhere, and its own direction."""

import pytest

from simulation.workbench.comparison.measures import metric_of
from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.report.findings import client_table
from simulation.workbench.report.page import write_report
from tests.support.pictures import draw_blank_pictures
from tests.support.report_runs import page_text, write_plan, write_run

VALUES = [3.0, 1.0, 2.0]
"""RMSE of the three rounds."""


@pytest.fixture
def folder(tmp_path):
    """Two methods and one seed; the clients' RMSE are 1 to 20, and their F1 are the same divided by 20."""
    tests = [
        {
            "client": client,
            "round": 3,
            "score": "rmse",
            "rmse": 1.0 + client,
            "metrics": {"f1_macro": (1 + client) / 20},
        }
        for client in range(20)
    ]
    row = {"score": "rmse", "metrics": {"f1_macro": 0.25}, "client_rmse": 10.5, "client_metrics": {"f1_macro": 0.525}}
    for path, strategy in zip(
        write_plan(tmp_path, [("random", 1, {}), ("oort", 1, {})]), ("random", "oort"), strict=True
    ):
        settings = {"clients": 20, "score": "rmse", "target": 1.5, "client_rows": tests, "finished": False}
        write_run(path, strategy, 1, VALUES, row=row, **settings)
    return tmp_path


def test_a_lower_score_wins(folder):
    [run, _] = RecordedComparison.read(folder).runs.values()
    metric = metric_of([run])
    assert (metric.name, metric.higher_wins) == ("RMSE", False)
    assert metric.of(run) == {"final_rmse": 2.0, "stable_rmse": 2.0, "best_rmse": 1.0}
    summary = run.summary.iloc[0]
    assert (summary["peak_rmse"], summary["stability_drop"], summary["rounds_to_target"]) == (1.0, 1.0, 2)


@pytest.mark.parametrize(
    ("metric", "title", "expected"),
    [
        ("", "RMSE by client", [10.5, 19.5, 20.0, 1.0]),
        ("client-rmse", "RMSE by client", [10.5, 19.5, 20.0, 1.0]),
        ("f1-macro", "F1 macro by client", [0.525, 0.075, 0.05, 1.0]),
        ("loss", "RMSE by client", [10.5, 19.5, 20.0, 1.0]),
    ],
)
def test_the_worst_tenth_of_the_clients_is_that_of_the_metric(folder, metric, title, expected):
    [group] = RecordedComparison.read(folder).groups
    table = client_table(group, metric_of(group.all_runs, metric))
    assert table.title == title
    columns = [column.name for column in table.columns]
    places = [columns.index(name) for name in ("mean of clients", "worst tenth", "worst client", "best client")]
    assert [table.rows[0][place] for place in places] == pytest.approx(expected)


def test_no_page_and_no_table_calls_it_accuracy(folder, monkeypatch):
    draw_blank_pictures(monkeypatch)
    write_report(folder)
    written = page_text(folder)
    assert "RMSE, mean of all 3 evaluations" in written
    assert "accuracy" not in written.lower()
    assert "at or above" not in written
    columns = (folder / "rounds.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert {"rmse", "client_rmse", "f1_macro", "client_f1_macro"} <= set(columns)
    assert not [name for name in columns if "accuracy" in name]
