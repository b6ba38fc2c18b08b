"""Rows and commands of `python -m laboratory bench round`."""

from dataclasses import replace

from rich.console import Console

from laboratory.bench import rounds
from laboratory.bench.baselines import TASKS
from laboratory.bench.rounds import BEST_EFFORT, PLAIN, WARM_UP, engine_commands, measure
from simulation.workbench.cli import main


def test_every_run_of_fedsel_has_settings_that_it_reads(monkeypatch, tmp_path):
    for key, task in TASKS.items():
        few = replace(task, examples=1000, test_examples=10)
        monkeypatch.setitem(TASKS, key, few)
        for name, command in engine_commands(few, 2, 2).items():
            assert main([*command, "--out", str(tmp_path / "run"), "--dry-run"]) == 0, name


def test_a_row_has_the_median_of_both_turns_without_the_first_rounds_beside_those_of_the_loops(monkeypatch):
    """Medians of 1, 3, 2, 2, of 1, 1, 1, 1 and of 6, 4, 4, 5 seconds; the 9 of the start count nowhere."""
    turns = {PLAIN: [[1, 3], [2, 2]], BEST_EFFORT: [[1, 1], [1, 1]], "fedsel": [[6, 4], [4, 5]]}
    runs = {what: (lambda left=each: [9.0] * WARM_UP + left.pop(0)) for what, each in turns.items()}
    monkeypatch.setattr(rounds, "contenders", lambda task, rounds, workers: runs)
    rows = list(measure(["mnist"], 2, 1, Console(quiet=True)))
    assert [[*row.values()] for row in rows] == [
        [TASKS["mnist"].name, PLAIN, 2.0, 1, 1.0, 2.0],
        [TASKS["mnist"].name, BEST_EFFORT, 1.0, 1, 0.5, 1.0],
        [TASKS["mnist"].name, "fedsel", 4.5, 4, 2.25, 4.5],
    ]
