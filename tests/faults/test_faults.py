"""A few faults and kills of runs; `python -m tests.faults` has all of them."""

import subprocess
import sys

import pytest

from tests.support.processes import looks_in_proc
from tests.support.sources import ROOT


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1200)
@looks_in_proc
@pytest.mark.parametrize("program", ["run", "asynchronous"])
def test_runs_with_faults_and_kills_end_with_the_bits_of_an_undisturbed_one(program):
    words = ["--programs", program, "--faults", "12", "--kills", "4"]
    done = subprocess.run([sys.executable, "-m", "tests.faults", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
