"""Trackers for real: a run that was killed and resumed is whole there. TensorBoard's files have a fast test."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsel_app.records.run_folder import read_rounds
from fedsel_app.records.trackers import numbers
from tests.support.sources import ROOT

FEDSEL = [sys.executable, "-P", "-m", "simulation.workbench.cli", "run"]
SMALL = ["--rounds", "12", "--clients", "4", "--cohort", "2", "--set", "local-steps=2", "--set", "checkpoint-every=4"]


@pytest.fixture(scope="module", params=["sqlite", "file"])
def tracked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder of a run that was killed after some rounds and resumed, tracked by MLflow, and MLflow's store."""
    pytest.importorskip("mlflow")
    path = tmp_path_factory.mktemp("tracked")
    store = f"sqlite:///{path}/mlflow.db" if request.param == "sqlite" else (path / "mlruns").as_uri()
    environment = {"PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true"}
    folder = path / "run"
    command = [*FEDSEL, *SMALL, "--out", str(folder), "--set", "track=mlflow"]
    killed = subprocess.Popen(command, cwd=path, env=os.environ | environment, stdout=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 300
        while not (folder / "rounds.jsonl").is_file() or len(read_rounds(folder)) < 6:
            assert killed.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
        killed.send_signal(signal.SIGKILL)
    finally:
        killed.kill()
        killed.wait()
    assert not (folder / "summary.json").exists()
    done = subprocess.run(
        [*FEDSEL, "--resume", str(folder)],
        cwd=path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no longer" not in done.stderr
    return folder, store


@pytest.mark.slow
@pytest.mark.e2e
def test_the_resumed_run_has_every_number_once(tracked: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, store = tracked
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    client = MlflowClient(store)
    [experiment] = [found for found in client.search_experiments() if found.name == "fedsel"]
    run, _ = client.search_runs([experiment.experiment_id], order_by=["start_time DESC"])
    assert (run.info.status, run.data.params["strategy"], run.data.params["rounds"]) == (
        "FINISHED",
        "hetero-select",
        "12",
    )
    for name in numbers(read_rounds(folder)[-1]):
        history = [(entry.step, entry.value) for entry in client.get_metric_history(run.info.run_id, name)]
        assert [step for step, _ in sorted(history)] == list(range(1, 13))
        if name != "wall_s":
            assert sorted(history) == [(row["round"], row[name]) for row in read_rounds(folder)]
    summary = json.loads((folder / "summary.json").read_text())
    assert run.data.metrics["summary/final_accuracy"] == summary["final_accuracy"]
