"""Attacks by mutation: 500,000 damaged payloads and thousands of scripted messages, under every method.

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
from tests.support.scripted_lies import CALIBRATE, ENROL, EVALUATE, FIT
from tests.support.scripted_messages import SCRIPTS, SETUPS, carry_out

PAYLOADS, PARTS = 500_000, 5
PAIRS = 20
"""Five codings of values, four of indices."""
LEAST_SCRIPTS = 2000
SAMPLE = 100


def test_a_sample_of_mutated_payloads():
    found = decode_mutated(3000, seed=0)
    assert found["pairs"] == PAIRS
    assert 0 < found["accepted"] < 1500


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_half_a_million_mutated_payloads(part):
    """Each part within 256 MiB and ten minutes, each payload within five seconds of processor time."""
    count = PAYLOADS // PARTS
    command = [sys.executable, "-m", "tests.support.mutated_payloads", str(count), str(1 + part)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["tried"] == count
    assert found["pairs"] == PAIRS
    assert found["rarest"] > count / PAIRS / 2
    assert 0 < found["accepted"] < count / 5
    assert found["slowest_s"] < MOST_S


@pytest.fixture
def no_waiting(monkeypatch):
    """A clock on which every wait is over at once, and no log of the thousands of refusals."""
    now_s = itertools.count(0.0, 1000.0)
    monkeypatch.setattr(clients, "time", SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda s: None))
    monkeypatch.setattr(logging.getLogger("fedsel"), "disabled", True)


def test_the_scripts_attack_every_message_of_every_method():
    assert len(SCRIPTS) >= LEAST_SCRIPTS
    assert len({(name, attack.name) for name, attack in SCRIPTS}) == len(SCRIPTS)
    assert set(STRATEGIES) <= set(SETUPS)
    assert {attack.message for _, attack in SCRIPTS} == {ENROL, FIT, EVALUATE, CALIBRATE}


def test_a_sample_of_the_scripted_messages(no_waiting):
    for name, attack in SCRIPTS[::SAMPLE]:
        carry_out(name, attack)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETUPS)
def test_scripted_messages(name, no_waiting):
    attacks = list(SETUPS[name].attacks)
    for attack in attacks:
        carry_out(name, attack)
    assert len(attacks) >= LEAST_SCRIPTS / len(SETUPS)
