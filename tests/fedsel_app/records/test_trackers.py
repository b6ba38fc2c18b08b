"""Trackers: TensorBoard's files, one warning if a tracker fails, and the setting; tests/runs has other tests."""

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from fedsel_app.records.run_folder import read_rounds
from fedsel_app.records.trackers import KINDS, EventFiles, add_trackers
from tests.support.in_process import run_in_process

SMALL = {"rounds": 3, "clients": 4, "cohort": 2, "local_steps": 1, "strategy": "random"}


class RunSoFar(NamedTuple):
    """What event files read of a run folder."""

    path: Path


def scalars(folder):
    """Scalars as TensorBoard itself reads them: name -> list of (round, value)."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_every_number_of_a_round_is_written_against_its_round(tmp_path):
    pytest.importorskip("tensorboard")
    files = EventFiles(RunSoFar(tmp_path))
    files.on_round({"round": 1, "accuracy": 0.5, "uplink_bytes": 1024, "selected": [1, 2], "failures": []})
    files.on_round({"round": 2, "uplink_bytes": 2048, "metrics": {"g_mean": 0.25}})
    files.on_end(None)
    assert scalars(tmp_path) == {
        "accuracy": [(1, 0.5)],
        "uplink_bytes": [(1, 1024.0), (2, 2048.0)],
        "g_mean": [(2, 0.25)],
    }


class MadeUpTracker:
    """Tracker that stores what it gets, and fails at the moment `fails`."""

    fails = ""

    def __init__(self, folder):
        self.heard = []
        type(self).last = self
        self.ask("open")

    def ask(self, moment):
        if moment == self.fails:
            raise OSError(f"no answer\nat {moment}")
        self.heard.append(moment)

    def on_round(self, row):
        self.ask(row["round"])

    def on_end(self, summary):
        self.ask("end" if summary else "stopped")


@pytest.fixture
def made_up(monkeypatch):
    """A made-up tracker that replaces MLflow."""
    made = type("MadeUpTracker", (MadeUpTracker,), {})
    monkeypatch.setitem(KINDS, "mlflow", made)
    return made


def test_a_tracker_that_joins_a_resumed_run_gets_the_earlier_rounds(made_up, tmp_path):
    folder = SimpleNamespace(rows=[{"round": 1}, {"round": 2}], listeners=[], at_end=[])
    add_trackers(folder, ["mlflow"])
    folder.listeners[0]({"round": 3})
    folder.at_end[0](None)
    assert made_up.last.heard == ["open", 1, 2, 3, "stopped"]


@pytest.mark.parametrize("moment", ["open", 2, "end"])
def test_a_failing_tracker_causes_one_warning_and_changes_no_bit(made_up, tmp_path, capsys, moment):
    made_up.fails = moment
    for name, track in (("tracked", "mlflow"), ("alone", "")):
        run_in_process(tmp_path / name, track=track, **SMALL)
    assert made_up.last.heard == {"open": [], 2: ["open", 1], "end": ["open", 1, 2, 3]}[moment]
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fedsel: ")]
    expected = f"fedsel: mlflow no longer tracks this run (OSError: no answer at {moment}); the run continues."
    assert warnings == [expected]
    rounds = [[row | {"wall_s": 0} for row in read_rounds(tmp_path / name)] for name in ("tracked", "alone")]
    assert rounds[0] == rounds[1]
    models = [np.load(tmp_path / name / "model.npz", allow_pickle=False) for name in ("tracked", "alone")]
    assert models[0]["parameters"].tobytes() == models[1]["parameters"].tobytes()
