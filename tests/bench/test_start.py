"""`python -m tests.bench start`: medians and ratios of given times, and the real stages of a small run."""

import pytest
from rich.console import Console

from simulation.deployment.flower_cli import DeploymentError
from tests.bench import start
from tests.bench.start import BARE_IMPORTS, INTERPRETER, RUN, Times, measure, python_times


def test_a_median_is_over_the_repeats_and_a_ratio_that_of_medians(monkeypatch):
    given = {name: iter([Times(4.0, 2.0), Times(1.0, 1.0), Times(2.0, 8.0)]) for name in start.COMMANDS}
    given[RUN] = iter([Times(3.0, 9.0), Times(5.0, 1.0), Times(4.0, 3.0)])
    names = {arguments: name for name, arguments in start.COMMANDS.items()}
    monkeypatch.setattr(start, "python_times", lambda arguments: (next(given[names[arguments]]), ""))
    monkeypatch.setattr(start, "stage_times", lambda engine: {"one": Times(1.0, 0.5)})
    found = {one.what: one for one in measure(3, "auto", Console(quiet=True))}
    assert (found[BARE_IMPORTS].wall_s, found[BARE_IMPORTS].cpu_s) == (2.0, 2.0)
    assert (found[RUN].wall_s, found[RUN].cpu_s) == (4.0, 3.0)
    assert (found[RUN].wall_ratio, found[RUN].cpu_ratio) == (2.0, 1.5)
    assert (found["one"].kind, found["one"].wall_ratio, found["one"].cpu_ratio) == ("stage", 0.5, 0.25)


def test_a_process_that_fails_ends_the_bench_with_what_it_said():
    with pytest.raises(DeploymentError, match="no such thing"):
        python_times(["-c", "raise SystemExit('no such thing')"])


@pytest.mark.e2e
@pytest.mark.slow
def test_the_stages_of_a_run_add_up_to_its_process(monkeypatch):
    small = ("rounds=2", "clients=3", "cohort=2", "local-steps=2")
    monkeypatch.setattr(start, "STAGES", (*start.STAGES, *small))
    stages = start.stage_times("inline")
    assert next(iter(stages)) == INTERPRETER
    assert {"import torch", "the other rounds", "summary and picture"} <= stages.keys()
    assert all(time.wall_s >= 0 and time.cpu_s >= 0 for time in stages.values())
