"""Commands on a run folder of version 1, whose records have other names."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedsel_app.cli import main
from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import RunFolder, read_config
from simulation.comparison.outcomes import measures
from simulation.comparison.results import read_comparison
from simulation.comparison.watch import read_progress
from simulation.report import page
from simulation.report.run_report import report_run
from tests.support.report_runs import VERSION_1_RUN


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(VERSION_1_RUN, tmp_path / "old"))


def test_it_is_watched(folder):
    [run] = read_progress(folder)
    assert (run.state, run.round, run.accuracy, run.uplink_mb) == ("finished", 3, 0.4958217270194986, 0.007252)


def test_it_is_compared(folder):
    [run] = read_comparison(folder).runs
    numbers = measures(run)
    assert (numbers["rounds_to_target"], numbers["uplink_to_target_mb"]) == (2, 0.006469)
    assert numbers["uplink_value_to_target_mb"] == 0.006268
    assert len(run.client_rows) == 12


def test_it_is_reported(folder, monkeypatch):
    monkeypatch.setattr(page, "plots", lambda *about: [])
    assert main(["report", str(folder)]) == 0
    assert "0.007" in (folder / "report-runs.csv").read_text()
    output = io.StringIO()
    report_run(folder, Console(file=output, width=100))
    assert "uplink_value_mb" in output.getvalue()
    assert (folder / "accuracy.png").exists()


def test_it_is_not_resumed(folder):
    (folder / "summary.json").unlink()
    np.savez(folder / "checkpoint.npz", round=np.array(2))
    with pytest.raises(ConfigError, match="is of version 1"):
        RunFolder(folder, read_config(folder), resume=True)
