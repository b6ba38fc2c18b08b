"""Files (falls 1, 2, 13, 15, 18, 19, 20): what is the user's stays, and what is a run's is its user's alone."""

import csv
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from clients.state import STATE_FOLDER, ClientHistory, StateError, StateStore
from fedsel_app.config import ConfigError
from fedsel_app.records.files import MachineFault
from fedsel_app.records.run_folder import RunFolder
from fedsel_app.wiring.configuration import resolve
from simulation.operations.machines.folders import make_federation
from simulation.operations.machines.private_files import held_folder
from simulation.workbench.cli import main
from simulation.workbench.comparison.plan import plan
from simulation.workbench.report.page import write_report
from tests.support.in_process import run_in_process
from tests.support.report_runs import write_plan, write_run
from tests.support.users_files import tree, written

SMALL = {"rounds": 1, "clients": 2, "cohort": 1, "local_steps": 1}
KNOWN = ClientHistory(last_instructed=1, last_aggregated=1)


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


@pytest.fixture
def open_umask():
    """The umask of most systems: what is made without a mode can be read by all."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def give_away(monkeypatch, *paths):
    """Make `paths` another user's: by their owner where that may be changed, else by this process's user."""
    if os.geteuid() == 0:
        for path in paths:
            os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def test_a_refused_resume_leaves_the_states_of_the_live_run(tmp_path, capsys):
    config = resolve({"out": str(tmp_path / "run"), "clients": 2, "cohort": 1})
    live = RunFolder(tmp_path / "run", config.values())
    StateStore(tmp_path / "run" / STATE_FOLDER).of_run("a1").save(0, 1, {"residual": np.ones(2)}, ClientHistory())
    before = tree(tmp_path)
    assert main(["run", "--engine", "inline", "--resume", str(tmp_path / "run")]) == 2
    assert "still going on in another process" in capsys.readouterr().err
    live.close()
    assert tree(tmp_path) == before


def test_the_folders_of_a_deployment_are_its_users_alone(tmp_path, open_umask):
    with held_folder(tmp_path / "run" / "processes", ""):
        pass
    assert [mode(tmp_path / name) for name in ("run", "run/processes")] == ["0o700"] * 2


def test_new_folders_of_runs_and_states_are_private(tmp_path, open_umask):
    run_in_process(tmp_path / "run", **SMALL)
    store = StateStore(tmp_path / "states" / STATE_FOLDER).of_run("a1")
    store.save(0, 1, {"residual": np.ones(2)}, ClientHistory())
    made = ("run", "states", f"states/{STATE_FOLDER}")
    assert [mode(tmp_path / name) for name in made] == ["0o700"] * 3
    (tmp_path / "mine").mkdir()
    run_in_process(tmp_path / "mine", **SMALL)
    assert mode(tmp_path / "mine") == "0o755"


def test_another_users_state_is_not_read(tmp_path, monkeypatch):
    folder = tmp_path / STATE_FOLDER
    store = StateStore(folder).of_run("a1")
    store.save(0, 1, {"residual": np.ones(2)}, ClientHistory())
    give_away(monkeypatch, folder / "a1" / "client-0" / "round-1.npz")
    with pytest.raises(StateError, match=r"round-1\.npz cannot be read \(it belongs to another user\)"):
        store.recall(0, KNOWN)
    give_away(monkeypatch, folder)
    with pytest.raises(StateError, match=r"belong to another user, .* Set 'state-dir'"):
        store.recall(0, KNOWN)
    with pytest.raises(MachineFault, match="did not make it for this user"):
        store.save(0, 2, {"residual": np.ones(2)}, KNOWN)


def test_a_state_behind_a_symlink_is_not_read(tmp_path):
    store = StateStore(tmp_path / STATE_FOLDER).of_run("a1")
    store.save(0, 1, {"residual": np.ones(2)}, ClientHistory())
    path = tmp_path / STATE_FOLDER / "a1" / "client-0" / "round-1.npz"
    path.rename(tmp_path / "planted.npz")
    path.symlink_to(tmp_path / "planted.npz")
    with pytest.raises(StateError, match=r"round-1\.npz cannot be read"):
        store.recall(0, KNOWN)


@pytest.mark.parametrize("name", ["round-x.npz", "round-1.npz.npz"])
def test_files_of_other_names_are_no_states(tmp_path, name):
    store = StateStore(tmp_path)
    store.save(3, 1, {"residual": np.ones(2)}, ClientHistory())
    written(tmp_path / "client-3" / name)
    aggregated, unacknowledged = store.recall(3, KNOWN)
    assert (aggregated["residual"].tolist(), unacknowledged) == ([1.0, 1.0], {})


@pytest.mark.parametrize("name", ["rounds.jsonl", "config.json"])
def test_a_run_with_a_symlinked_record_is_not_resumed(tmp_path, capsys, name):
    run_in_process(tmp_path / "run", **SMALL)
    (tmp_path / "run" / "summary.json").unlink()
    path = tmp_path / "run" / name
    precious = tmp_path / "precious"
    precious.write_bytes(path.read_bytes() if path.exists() else b"without newline")
    path.unlink(missing_ok=True)
    path.symlink_to(precious)
    before = tree(tmp_path)
    assert main(["run", "--resume", str(tmp_path / "run")]) == 2
    assert f"has a symlink '{name}'" in capsys.readouterr().err
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["failures.jsonl", "runs", "runs/random-s1.toml"])
def test_a_comparison_writes_through_no_symlink(tmp_path, name):
    write_plan(tmp_path / "out", [("random", 1, {})])
    written(tmp_path / "precious")
    (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "out" / name).symlink_to(tmp_path / "precious")
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match="symlink"):
        plan(tmp_path / "out", ["random"], [1], {}, {}).check()
    assert tree(tmp_path) == before


def test_a_report_writes_through_no_symlink(tmp_path, without_figures):
    write_run(tmp_path / "run", "random", 1, [0.5])
    written(tmp_path / "precious")
    for name in ("report.html", "report-runs.csv", "report.html.part"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "precious")
    write_report(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == "the user's own"


def test_texts_of_a_run_are_text_in_csv(tmp_path, without_figures):
    reasons = ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "\tx", "-0.5", "<script>a|b</script>", "[a](javascript:b)"]
    failures = [{"client": client % 4, "reason": reason} for client, reason in enumerate(reasons)]
    [path] = write_plan(tmp_path, [("random", 1, {"lr": "=cmd()"})])
    write_run(path, "random", 1, [0.5], row={"failures": failures})
    write_report(tmp_path)
    cells = [row["reason"] for row in csv.DictReader((tmp_path / "report-failures.csv").read_text().splitlines())]
    assert cells == ["'=HYPERLINK(1)", "'+1+1", "'-2+3", "'@SUM(A1)", "'\tx", "-0.5", *reasons[-2:]]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;a|b&lt;/script&gt;" in text
    assert "<script>" not in text


def test_git_offers_no_keys(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    make_federation(tmp_path / "federation", ["localhost"], 1, 9092)
    offered = subprocess.run(
        ["git", "-C", str(tmp_path), "status", "--porcelain", "-uall"], capture_output=True, text=True, check=True
    )
    assert offered.stdout == ""
