"""`fedsel watch`: progress from the files of unfinished runs."""

import io
import json
import time

import pytest
from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.records.schema import RoundRecord, as_row
from simulation.workbench.cli import main
from simulation.workbench.comparison.watch import follow, read_progress


def row(number, accuracy=None, **more):
    found = as_row(RoundRecord(number, time_s=2.0 * number, total_uplink_bytes=500_000 * number)) | more
    return found if accuracy is None else found | {"accuracy": accuracy}


def run_folder(path, rows, *, finished=False):
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"rounds": 20}))
    (path / "rounds.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows))
    if finished:
        (path / "summary.json").write_text("{}")
    return path


@pytest.fixture
def comparison(tmp_path):
    names = ["done", "going", "connecting", "broken", "later"]
    runs = [{"name": name, "folder": f"runs/{name}"} for name in names]
    (tmp_path / "comparison.json").write_text(json.dumps({"version": 1, "runs": runs}))
    (tmp_path / "failures.jsonl").write_text(json.dumps({"name": "broken", "message": "it broke"}) + '\n{"name": "go')
    run_folder(tmp_path / "runs/done", [row(1, 0.5), row(2, 0.75)], finished=True)
    run_folder(tmp_path / "runs/going", [row(1, 0.25), row(2), row(3)])
    with (tmp_path / "runs/going/rounds.jsonl").open("a") as file:
        file.write('{"round": 4, "accu')
    run_folder(tmp_path / "runs/connecting", [])
    run_folder(tmp_path / "runs/broken", [row(1, 0.1)])
    return tmp_path


def test_without_a_terminal_the_line_is_printed_once(comparison, capsys):
    assert main(["watch", str(comparison)]) == 0
    assert capsys.readouterr().out == (
        "2 of 5 runs ended, 1 failed; about 0 s left (going round 3 of 20, connecting round 0 of 20)\n"
    )


def test_a_folder_of_neither_is_refused(tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "has neither a comparison (comparison.json) nor a run" in capsys.readouterr().err
    (tmp_path / "comparison.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read: "):
        read_progress(tmp_path)


def test_the_line_ends_with_the_last_run(comparison, monkeypatch):
    steps = iter([("connecting", "summary.json"), ("going", "summary.json"), ("later", None)])

    def next_step(_):
        name, file = next(steps)
        if file:
            (comparison / "runs" / name / file).write_text("{}")
        else:
            run_folder(comparison / "runs" / name, [row(1, 0.9)], finished=True)

    monkeypatch.setattr(time, "sleep", next_step)
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    follow(comparison, console)
    assert "5 of 5 runs ended" in console.file.getvalue()
    assert list(steps) == []
