"""Tuning in a report: default against tuned settings of each method."""

from collections.abc import Sequence
from typing import Any

from simulation.workbench.comparison.measures import Numbers, metric_of
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import paired
from simulation.workbench.comparison.tuning_file import CELL, DEFAULT, TUNED, read_tuning, settings_text
from simulation.workbench.report.findings import judged
from simulation.workbench.report.tables import Heading, Spread, Table, capital

KIND = "Each method with the settings of its best trial."
"""Sentence on the settings that all tuned methods share."""


def tuned_kind(group: Group) -> str:
    """Sentence on the runs of a group if all of them are tuned; empty otherwise."""
    return KIND if all(run.cell.get(CELL) == TUNED for run in group.all_runs) else ""


def tuning_section(comparison: RecordedComparison) -> tuple[list[str], Table | None]:
    """Sentence and table on the tuning in the comparison's folder; none without a tuning or a finished pair of runs.

    They are about the score, whatever the metric of the report is.

    Raises ConfigError if tuning.json is damaged.
    """
    tuning = read_tuning(comparison.folder)
    groups = _groups(comparison)
    if tuning is None or "best" not in tuning or not groups:
        return [], None
    score = metric_of(comparison.counted)
    goal = score.stable
    numbers = {name: Numbers(groups[name], score) for name in tuning["best"] if name in groups}
    results = judged({name: paired(*of.pairs(TUNED, DEFAULT, goal.key)) for name, of in numbers.items()})
    columns = [*map(Heading, ("strategy", "best trial", "failed trials", "settings of the best trial"))]
    columns += [Heading(name, goal.digits, spreads=True) for name in ("default", "tuned")]
    columns += [Heading("difference", goal.digits, estimates=True)]
    columns += [Heading("p (Holm)", 3), Heading("verdict")]
    rows: list[Sequence[Any]] = []
    for name, (result, p, verdict) in results.items():
        best = tuning["best"][name]
        row = [name, best["trial"], len(best["failures"]), settings_text(best["settings"])]
        row += [Spread.of(numbers[name].reached(cell, goal.key)) for cell in (DEFAULT, TUNED)]
        rows.append([*row, result.difference, p if result.difference.n > 1 else None, verdict])
    over = ", ".join(f"{key} ({text})" for key, text in tuning["over"].items())
    budget = (
        f"Tuned: {tuning['trials']} trials of each method, the first with its default settings, over {over}. Trials "
        f"are ranked by {score.name} on a validation set, on the seeds {', '.join(map(str, tuning['tuning_seeds']))}; "
        "all results below are on other seeds."
    )
    caption = (
        f"{capital(goal.name)}: mean and standard deviation over the seeds of the comparison. The difference is tuned "
        "minus default on the same seed, with 95% t interval; p is from the paired t test, adjusted by Holm over the "
        "methods. The best trial was chosen on the tuning seeds only, so it can be worse than the defaults here."
    )
    return [budget], Table("tuning", "Default against tuned settings", caption, columns, rows)


def _groups(comparison: RecordedComparison) -> dict[str, Group]:
    """Strategy -> its default and its tuned runs, for strategies with both."""
    runs_of: dict[str, dict[str, list[RecordedRun]]] = {}
    for run in comparison.counted:
        runs_of.setdefault(run.strategy, {}).setdefault(str(run.cell.get(CELL)), []).append(run)
    return {
        name: Group(name, {cell: tuple(cells[cell]) for cell in (DEFAULT, TUNED)}, DEFAULT)
        for name, cells in runs_of.items()
        if {DEFAULT, TUNED} <= cells.keys()
    }
