"""A Ray worker that is killed in mid-round."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from simulation.workbench.comparison.run_processes import FEDSEL
from tests.support.processes import titles
from tests.support.rounds import assert_same, written

WORK = "ray::ClientAppActor.run"
"""Process title of a worker while it answers a message."""
SETTINGS = ("--rounds", "6", "--clients", "10", "--cohort", "4")
SETTINGS += ("--set", "local-steps=800", "--set", "checkpoint-every=2", "--set", "probe-batches=2")


def working(root: int) -> list[int]:
    """Workers below the process `root`, and no others, that answer a message now."""
    processes = titles()

    def below(pid: int) -> bool:
        while pid in processes:
            pid = processes[pid][0]
            if pid == root:
                return True
        return False

    return [pid for pid, (_, title) in processes.items() if title.startswith(WORK) and below(pid)]


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_in_mid_round_is_replaced_and_nothing_changes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*FEDSEL, "run", *SETTINGS, "--out", str(whole)], check=True, capture_output=True)
    command = [*FEDSEL, "run", "--engine", "ray", *SETTINGS, "--out", str(killed)]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while written(killed) < 3 or not (workers := working(process.pid)):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.02)
        os.kill(workers[0], signal.SIGKILL)
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert_same(killed, whole)
