"""`python -m tests.bench select`: methods measured, growth of their costs, and limits."""

import argparse
import json
import math

import pytest
from rich.console import Console

from tests.bench import selection
from tests.bench.selection import TOO_LARGE, TOO_LONG, Cost, cost, costs_of, growth, run


@pytest.mark.parametrize("name", ["random", "fed-cbs", "hetero-select", "divfl"])
def test_a_round_costs_time_and_memory(name):
    found = cost(name, 40)
    assert 0 < found.ms <= found.slowest_ms < 60_000
    assert found.wall_ms > 0
    assert found.peak_mib > 0
    assert found.state_mib >= (8 * 40**2 / 2**20 if name == "divfl" else 0)
    assert not found.stopped


def test_the_growth_exponent_is_the_slope_of_the_three_largest():
    quadratic = [Cost("any", size, ms=1e-6 * size**2) for size in (10**5, 10**3, 10**4)]
    assert growth([Cost("any", 10, ms=7.0), *quadratic]) == pytest.approx(2.0)
    assert growth([*quadratic, Cost("any", 10**6, stopped=TOO_LONG)]) == pytest.approx(2.0)
    assert math.isnan(growth(quadratic[:1]))


def test_a_table_shows_what_was_stopped_and_its_rows_are_json(monkeypatch):
    costs = [Cost("random", 100, 1.0, 2.0, 3.0, 4.0, 5.0), Cost("random", 1000, stopped=TOO_LARGE)]
    monkeypatch.setattr(selection, "costs_of", lambda *arguments: iter(costs))
    console = Console(width=120, record=True, quiet=False)
    with console.capture() as capture:
        rows = run(argparse.Namespace(strategies="random", clients=10_000, cohort=10, limit_s=5.0), console)
    assert "> 8 GiB" in capture.get()
    assert [row["stopped"] for row in rows] == ["", "too large"]
    assert rows[1]["ms"] is None
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


@pytest.mark.slow
def test_a_method_that_is_too_slow_is_stopped():
    found = list(costs_of("fedcg", [20, 2_000, 4_000], 10, 1.0))
    assert [each.stopped for each in found][-1] == TOO_LONG
    assert len(found) < 3
