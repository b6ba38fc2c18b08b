"""Benches of the checkout (`python -m laboratory bench`): medians, ratios and bounds by hand, failures, and limits."""

import json
import math

import pytest
from rich.console import Console

from laboratory.__main__ import main
from laboratory.bench import clients, selection, start
from laboratory.bench.clients import Run
from laboratory.bench.selection import TOO_LONG, growth
from laboratory.bench.start import BARE_IMPORTS, RUN, Times


def test_a_size_that_fails_is_reported_and_the_others_are_measured(monkeypatch, tmp_path, capsys):
    def measured(settings):
        if settings["clients"] == 20:
            raise RuntimeError("the memory did not suffice")
        return Run("inline", 1.0, 0.5, 0.25, 500.0)

    monkeypatch.setattr(clients, "run_once", measured)
    out = tmp_path / "table.json"
    assert main(["bench", "clients", "--clients", "20,10", "--out", str(out)]) == 0
    smaller, larger = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert (smaller["clients"], smaller["ratio"], smaller["failed"]) == (10, 1.0, "")
    assert (larger["clients"], larger["round_s"], larger["failed"]) == (20, None, "the memory did not suffice")
    assert "random, 20 clients: the memory did not suffice" in capsys.readouterr().out


def test_the_growth_exponent_is_the_slope_of_the_three_largest():
    quadratic = [selection.Cost("any", size, ms=1e-6 * size**2) for size in (10**5, 10**3, 10**4)]
    assert growth([selection.Cost("any", 10, ms=7.0), *quadratic]) == pytest.approx(2.0)
    assert growth([*quadratic, selection.Cost("any", 10**6, stopped=TOO_LONG)]) == pytest.approx(2.0)
    assert math.isnan(growth(quadratic[:1]))


def test_a_median_is_over_the_repeats_and_a_ratio_that_of_medians(monkeypatch):
    given = {name: iter([Times(4.0, 2.0), Times(1.0, 1.0), Times(2.0, 8.0)]) for name in start.COMMANDS}
    given[RUN] = iter([Times(3.0, 9.0), Times(5.0, 1.0), Times(4.0, 3.0)])
    names = {arguments: name for name, arguments in start.COMMANDS.items()}
    monkeypatch.setattr(start, "python_times", lambda arguments: (next(given[names[arguments]]), ""))
    monkeypatch.setattr(start, "stage_times", lambda engine: {"one": Times(1.0, 0.5)})
    found = {one.what: one for one in start.measure(3, "auto", Console(quiet=True))}
    assert (found[BARE_IMPORTS].wall_s, found[BARE_IMPORTS].cpu_s) == (2.0, 2.0)
    assert (found[RUN].wall_s, found[RUN].cpu_s) == (4.0, 3.0)
    assert (found[RUN].wall_ratio, found[RUN].cpu_ratio) == (2.0, 1.5)
    assert (found["one"].kind, found["one"].wall_ratio, found["one"].cpu_ratio) == ("stage", 0.5, 0.25)


def test_a_cohort_as_one_batch_and_top_k_on_the_device_end_with_the_numbers_of_the_loop_and_the_host(tmp_path):
    out, sizes = tmp_path / "table.json", ("--clients", "2", "--steps", "2", "--size", "1001", "--repeats", "1")
    assert main(["bench", "gpu", "--device", "cpu", "--tasks", "", *sizes, "--out", str(out)]) == 0
    whats = [row["what"].split()[0] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]]
    assert whats == ["logistic,", "lenet,", "top-k"]
