"""A deployment that is killed three times and resumed each time ends as the run that nothing disturbed."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.processes import looks_in_proc, mentioning, until
from tests.support.rounds import assert_same, written

SETTINGS = ("--rounds", "10", "--clients", "3", "--cohort", "2")
SETTINGS += tuple(flag for value in ("local-steps=5", "checkpoint-every=2") for flag in ("--set", value))
KILLED_AFTER = (3, 5, 8)
"""Rounds on record at each kill: more than at the one before it, so that the run gets on."""
ENDS_WITHIN_S = 10.0


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
@looks_in_proc
def test_three_kills_of_a_deployment_change_nothing(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*FEDSEL, "run", *SETTINGS, "--out", str(whole)], check=True, capture_output=True)
    command = [*FEDSEL, "deploy", *SETTINGS, "--set", "links=simulated", "--out", str(folder)]
    again = [*FEDSEL, "deploy", "--resume", str(folder)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    for kill, after in enumerate(KILLED_AFTER):
        with (tmp_path / f"{kill}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        until(lambda after=after, process=process: written(folder) >= after or process.poll() is not None, 400.0)
        assert process.poll() is None, (tmp_path / f"{kill}.log").read_text()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not mentioning(folder), ENDS_WITHIN_S)
        assert not (folder / "summary.json").exists()
        assert not list(temporary.iterdir())
        assert list((folder / "fedsel-state").rglob("client-*/round-*.npz")), "the residuals outlive the processes"
        command = again
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(temporary.iterdir())
    assert not (folder / "processes/tmp").exists()
    assert_same(folder, whole)
