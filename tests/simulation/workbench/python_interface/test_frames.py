"""Data frames of handwritten records, so that every cell can be computed by hand."""

import json

import pytest

from fedsel_app import load_comparison, load_run
from fedsel_app.config import ConfigError
from tests.support.report_runs import write_run

SELECTED = [[0, 1], [1, 3], [3, 1]]
CLIENT_ROWS = [
    {"client": 0, "round": 1, "examples": 40},
    {"client": 1, "round": 2, "examples": 30},
    {"client": 1, "round": 2, "accuracy": 0.25},
    {"client": 1, "round": 3, "accuracy": 0.5},
    {"round": 1, "node": "7", "outcome": "refused"},
]


@pytest.fixture
def folder(tmp_path):
    """An unfinished run of three rounds. The second round is not evaluated, and client 1 fails in all rounds."""
    own = {"failures": [{"client": 1, "reason": "gone"}], "metrics": {"g_mean": 0.75}}
    accuracies = [0.5, None, 0.7]
    write_run(
        tmp_path / "run", "hetero-select", 3, accuracies, selected=SELECTED, client_rows=CLIENT_ROWS, row=own,
        finished=False,
    )  # fmt: skip
    return tmp_path / "run"


def test_the_clients_have_their_counts_and_last_tests(folder):
    frame = load_run(folder).clients.set_index("client")
    assert frame["selected"].tolist() == [1, 3, 0, 2]
    assert frame["aggregated"].tolist() == [1, 3, 0, 2]
    assert frame["failed"].tolist() == [0, 3, 0, 0]
    assert frame["examples"].fillna(-1).tolist() == [40, 30, -1, -1]
    assert frame["accuracy"].fillna(-1).tolist() == [-1, 0.5, -1, -1]


def test_an_unfinished_run_has_a_summary_so_far_and_no_model(folder):
    result = load_run(folder)
    [summary] = result.summary.to_dict("records")
    assert (summary["finished"], summary["final_accuracy"], summary["final_g_mean"]) == (False, 0.7, 0.75)
    assert (summary["uplink_mb"], summary["selection_count_max"]) == (0.75, 3)
    with pytest.raises(ConfigError, match=r"no .*model\.npz yet: the run is not finished"):
        _ = result.model


def test_a_comparison_leads_each_row_with_its_run(tmp_path):
    runs = []
    for strategy in ("random", "oort"):
        for alpha in (0.1, 1.0):
            name = f"{strategy}-{alpha}"
            write_run(tmp_path / "runs" / name, strategy, 1, [0.5, 0.9], alpha=alpha, finished=False)
            runs.append({"name": name, "folder": f"runs/{name}", "cell": {"alpha": alpha}})
    (tmp_path / "comparison.json").write_text(json.dumps({"version": 1, "runs": runs}))
    result = load_comparison(tmp_path)
    assert list(result.rounds.columns[:5]) == ["run", "strategy", "seed", "alpha", "round"]
    assert result.rounds["alpha"].tolist() == [0.1, 0.1, 1.0, 1.0] * 2
    assert result.summary["run"].tolist() == [run["name"] for run in runs]
    assert result.clients.groupby("run")["selected"].sum().tolist() == [4] * 4
    assert result.runs["oort-0.1"].settings["alpha"] == 0.1
    assert result.plot("alpha=0.1").get_axes()
    for cell in (None, "alpha=7"):
        with pytest.raises(ConfigError, match=r"one of the cells alpha=0.1; alpha=1.0"):
            result.plot(cell)
