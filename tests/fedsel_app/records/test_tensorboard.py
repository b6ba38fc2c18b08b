import sys

import pytest

from fedsel_app.config import ConfigError
from fedsel_app.records.tensorboard import EventFiles
from simulation.experiments.configuration import resolve
from simulation.wiring.preflight import refuse_unrunnable


def scalars(folder):
    """Scalars as TensorBoard itself reads them: name -> list of (round, value)."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_every_number_of_a_round_is_written_against_its_round(tmp_path):
    files = EventFiles(tmp_path / "events", 0)
    files.round({"round": 1, "accuracy": 0.5, "uplink_bytes": 1024, "selected": [1, 2], "failures": []})
    files.round({"round": 2, "uplink_bytes": 2048, "metrics": {"g_mean": 0.25}})
    assert scalars(tmp_path / "events") == {
        "accuracy": [(1, 0.5)],
        "uplink_bytes": [(1, 1024.0), (2, 2048.0)],
        "g_mean": [(2, 0.25)],
    }


def test_a_resumed_run_drops_what_was_written_after_its_checkpoint(tmp_path):
    before = EventFiles(tmp_path, 0)
    for number in (1, 2, 3):
        before.round({"round": number, "accuracy": number / 10})
    after = EventFiles(tmp_path, 1)
    after.round({"round": 2, "accuracy": 0.75})
    assert [step for step, _ in scalars(tmp_path)["accuracy"]] == [1, 2]
    assert scalars(tmp_path)["accuracy"][1] == (2, 0.75)


def test_without_the_package_the_run_is_refused_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"'tensorboard' parameter needs .*pip install 'fedsel\[tensorboard\]'"):
        refuse_unrunnable(resolve({"tensorboard": True, "out": str(tmp_path / "run")}))
