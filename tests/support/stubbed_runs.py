"""Comparisons with stubs as runs: `stub_run.py` replaces `fedsel run`; everything else is real."""

import json
import sys
from pathlib import Path

import pytest

from simulation.workbench.cli import main
from simulation.workbench.comparison import run_processes

ARGUMENTS = ["--clients", "6", "--cohort", "2", "--rounds", "2", "--seeds", "1,2"]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a comparison of stubs."""
    return stubbed_runs(tmp_path, monkeypatch)


def stubbed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let comparisons run the stub and check on it often. Returns a folder for a comparison."""
    command = (sys.executable, "-S", str(Path(__file__).with_name("stub_run.py")))
    monkeypatch.setattr(run_processes, "FEDSEL", command)
    monkeypatch.setattr(run_processes, "PREPARATION", "")
    monkeypatch.setattr(run_processes, "POLL_S", 0.02)
    monkeypatch.setattr(run_processes, "GRACE_S", 0.3)
    return tmp_path / "out"


def compare_arguments(out, *more, strategies="oort,random"):
    """Command line of a comparison of stubs."""
    return ["compare", "--strategies", strategies, "--out", str(out), *ARGUMENTS, *more]


def compared(capsys, out, *more, strategies="oort,random"):
    """Exit code, output and errors of `fedsel compare`."""
    code = main(compare_arguments(out, *more, strategies=strategies))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def stub(monkeypatch, **wishes):
    """Set the behaviour of the stubs; see `stub_run.py`."""
    monkeypatch.setenv("STUB", json.dumps(wishes))


def events(out) -> list[str]:
    """Starts and ends of the stubs, in their order."""
    return (out / "starts.log").read_text().splitlines()


def records(out) -> dict[str, str]:
    """Contents of all files of the runs, with the comparison's folder replaced by OUT."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file() and path.name not in ("starts.log", "x.log")]
    return {path.relative_to(out).as_posix(): path.read_text().replace(str(out), "OUT") for path in files}
