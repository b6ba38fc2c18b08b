"""A simulation that is killed at random moments and resumed each time ends as if nothing had happened."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest

from simulation.comparison.run_processes import FEDSEL
from tests.support.rounds import assert_same, written

ROUNDS, LAST_KILLED, KILLS = 60, 40, 10
"""Rounds; the last that is waited for, so that the run is not over half a second later; kills."""
SETTINGS = ("--rounds", str(ROUNDS), "--clients", "10", "--cohort", "3")
SETTINGS += tuple(
    flag for value in ("local-steps=100", "checkpoint-every=4", "probe-batches=2") for flag in ("--set", value)
)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_ten_kills_at_random_moments_change_nothing(tmp_path):
    subprocess.run([*FEDSEL, "run", *SETTINGS, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    folder, rng = tmp_path / "killed", np.random.default_rng(20261121)
    command = [*FEDSEL, "run", *SETTINGS, "--out", str(folder)]
    # Each later than the checkpoint that it goes back to, so that the run gets on.
    for target in np.sort(rng.choice(np.arange(1, LAST_KILLED), KILLS, replace=False)).tolist():
        process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        while written(folder) < target and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.5))
        assert process.poll() is None, process.communicate()[0].decode()
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        command = [*FEDSEL, "run", "--resume", str(folder)] if (folder / "config.json").exists() else command
    subprocess.run(command, check=True, capture_output=True)
    assert_same(folder, tmp_path / "whole")
