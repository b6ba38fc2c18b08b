"""`python -m tests.bench clients`: medians, ratios, runs that fail, and the memory of all processes."""

import json
import os
import subprocess
import sys

import pytest
from rich.console import Console

from tests.bench import clients
from tests.bench.__main__ import main
from tests.bench.clients import DATA, PROC, SHARED, ClientsCost, Run, measure, run_once

needs_proc = pytest.mark.skipif(not PROC.is_dir(), reason="reads /proc")


def test_costs_are_medians_and_ratios_to_the_fewest_clients(monkeypatch):
    seconds = {100: iter([1.0, 4.0, 2.0]), 1000: iter([3.0, 3.0, 9.0])}

    def measured(settings):
        round_s = next(seconds[settings["clients"]])
        return Run("inline", 10 * round_s, round_s, round_s / 4, 500.0)

    monkeypatch.setattr(clients, "run_once", measured)
    assert list(measure({"strategy": "random"}, [100, 1000], Console(quiet=True))) == [
        ClientsCost("random", 100, "inline", 20.0, 2.0, 1.0, 0.5, 1.0, 500.0),
        ClientsCost("random", 1000, "inline", 30.0, 3.0, 1.5, 0.75, 1.5, 500.0),
    ]


def test_a_size_that_fails_is_reported_and_the_others_are_measured(monkeypatch, tmp_path, capsys):
    def measured(settings):
        if settings["clients"] == 20:
            raise RuntimeError("the memory did not suffice")
        return Run("inline", 1.0, 0.5, 0.25, 500.0)

    monkeypatch.setattr(clients, "run_once", measured)
    out = tmp_path / "table.json"
    assert main(["clients", "--clients", "20,10", "--out", str(out)]) == 0
    smaller, larger = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert (smaller["clients"], smaller["ratio"], smaller["failed"]) == (10, 1.0, "")
    assert (larger["clients"], larger["round_s"], larger["failed"]) == (20, None, "the memory did not suffice")
    assert "random, 20 clients: the memory did not suffice" in capsys.readouterr().out


@needs_proc
def test_the_memory_of_a_process_and_of_those_that_it_started_is_found():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in set(clients._descendants(os.getpid()))
        child.communicate(b"\n")
    assert child.pid not in set(clients._descendants(os.getpid()))
    assert clients._peak_kib(os.getpid()) > 10_000
    assert clients._peak_kib(2**30) == 0


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
def test_a_run_is_timed_in_a_process_of_its_own(data):
    settings = SHARED | DATA[data] | {"data": data, "strategy": "random", "clients": 6, "cohort": 2, "rounds": 3}
    found = run_once(settings)
    assert found.engine == "inline"
    assert found.cpu_s > 0
    assert 0 < found.round_s < found.start_s
    assert found.peak_mib > 100
    with pytest.raises(RuntimeError, match="'cohort'"):
        run_once(settings | {"cohort": 7})
