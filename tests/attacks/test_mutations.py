"""Attacks by mutation: 100,000 damaged payloads and thousands of scripted messages, under every method.

No crash, no hang, and nothing accepted that is unsound. The quick tests carry out a small sample of both.
"""

import itertools
import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from strategies import STRATEGIES
from strategies.round import clients
from tests.support.documentation import ROOT
from tests.support.mutated_payloads import MOST_S, decode_mutated
from tests.support.scripted_messages import SCRIPTS, SETUPS, carry_out

PAYLOADS = 100_000
PAIRS = 27
"""Nine codings of values, three of indices."""
SAMPLE = 100


def test_a_sample_of_mutated_payloads():
    found = decode_mutated(3000, seed=0)
    assert found["pairs"] == PAIRS
    assert 0 < found["accepted"] < 1500


@pytest.mark.slow
def test_a_hundred_thousand_mutated_payloads():
    """Within 256 MiB, each payload within five seconds of processor time."""
    command = [sys.executable, "-m", "tests.support.mutated_payloads", str(PAYLOADS), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert (found["tried"], found["pairs"]) == (PAYLOADS, PAIRS)
    assert found["rarest"] > PAYLOADS / PAIRS / 2
    assert 0 < found["accepted"] < PAYLOADS / 5
    assert found["slowest_s"] < MOST_S


@pytest.fixture
def no_waiting(monkeypatch):
    """A clock on which every wait is over at once, and no log of the thousands of refusals."""
    now_s = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(clients, "time", SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda s: None))
    monkeypatch.setattr(logging.getLogger("fedsel"), "disabled", True)


def test_a_sample_of_the_scripted_messages(no_waiting):
    assert set(STRATEGIES) <= set(SETUPS)
    for name, attack in SCRIPTS[::SAMPLE]:
        carry_out(name, attack)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETUPS)
def test_scripted_messages(name, no_waiting):
    for attack in SETUPS[name].attacks:
        carry_out(name, attack)
