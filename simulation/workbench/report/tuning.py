"""Tuning in a report: default against tuned settings of each method, and the ranks that changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simulation.workbench.comparison.measures import Measure, Numbers, metric_of
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.comparison.statistics import FEWEST_PAIRS, Paired, paired
from simulation.workbench.comparison.tuning_file import (
    CELL,
    DEFAULT,
    TUNED,
    VALIDATION,
    goal_of,
    read_tuning,
    settings_text,
)
from simulation.workbench.report.findings import SCALES, interval, judged
from simulation.workbench.report.tables import Heading, Table, capital

KIND = "Each method with the settings of its best trial."
"""Sentence on the settings that all tuned methods share."""


def tuned_kind(group: Group) -> str:
    """Sentence on the runs of a group if all of them are tuned; empty otherwise."""
    return KIND if all(run.cell.get(CELL) == TUNED for run in group.all_runs) else ""


def tuning_section(comparison: RecordedComparison) -> tuple[list[str], Table | None]:
    """Sentences and table on the tuning in the comparison's folder; none without a tuning or a finished pair of runs.

    They are about what ranked the trials, whatever the metric of the report is.

    Raises ConfigError if tuning.json is damaged.
    """
    tuning = read_tuning(comparison.folder)
    groups = _groups(comparison)
    if tuning is None or "best" not in tuning or not groups:
        return [], None
    score, metric_key = metric_of(comparison.counted), tuning["metric"].replace(VALIDATION, "")
    goal = goal_of(metric_key, score.key)
    goal = score.stable if goal.key == score.stable.key else goal
    best = {name: one for name, one in tuning["best"].items() if name in groups}
    numbers = {name: Numbers(group, score) for name, group in groups.items()}
    results = judged({name: paired(*of.pairs(TUNED, DEFAULT, goal.key)) for name, of in numbers.items()})
    ranks = {cell: _ranks(numbers, cell, goal) for cell in (DEFAULT, TUNED)}
    budget = _budget(tuning, goal if metric_key == tuning["metric"] else goal_of(tuning["metric"], score.key))
    return [budget, _rank_sentence(ranks, goal)], _table(tuning, goal, best, numbers, results, ranks)


def _groups(comparison: RecordedComparison) -> dict[str, Group]:
    """Strategy, as it is shown -> its default and its tuned runs, for strategies with both."""
    runs_of: dict[str, dict[str, list[Any]]] = {}
    for run in (run for group in comparison.groups for run in group.all_runs):
        runs_of.setdefault(run.strategy, {}).setdefault(str(run.cell.get(CELL)), []).append(run)
    return {
        name: Group(name, {cell: tuple(cells[cell]) for cell in (DEFAULT, TUNED)}, DEFAULT)
        for name, cells in runs_of.items()
        if {DEFAULT, TUNED} <= cells.keys()
    }


def _ranks(numbers: Mapping[str, Numbers], cell: str, goal: Measure) -> dict[str, int]:
    """Strategy -> rank from 1: by the share of its runs with the measure, then by the mean of the measure over these
    runs.
    """

    def place(name: str) -> tuple[float, float]:
        values = numbers[name].values(cell, goal.key)
        finite = values[np.isfinite(values)]
        mean = float(finite.mean()) if finite.size else 0.0
        return -finite.size / values.size, -mean if goal.higher_wins else mean

    return {name: rank for rank, name in enumerate(sorted(numbers, key=place), start=1)}


def _budget(tuning: Mapping[str, Any], goal: Measure) -> str:
    over = ", ".join(f"{key} ({text})" for key, text in tuning["over"].items())
    seeds = ", ".join(map(str, tuning["tuning_seeds"]))
    return (
        f"Tuned: {tuning['trials']} trials of each method, the first with its default settings, over {over}. "
        f"Trials are ranked by {goal.name} on the seeds {seeds}; all results below are on other seeds."
    )


def _rank_sentence(ranks: Mapping[str, Mapping[str, int]], goal: Measure) -> str:
    before, after = ranks[DEFAULT], ranks[TUNED]
    changed = [f"{name} from {before[name]} to {after[name]}" for name in after if before[name] != after[name]]
    mean = f"the mean of {goal.name.partition(', ')[0]}"
    order = ", ".join(f"{rank} {name}" for name, rank in after.items())
    if not changed:
        return f"Ranks that changed: none. Ranks by {mean}, with default and with tuned settings: {order}."
    return f"Ranks that changed, by {mean}: {', '.join(changed)}. Ranks with tuned settings: {order}."


def _table(
    tuning: Mapping[str, Any],
    goal: Measure,
    best: Mapping[str, Any],
    numbers: Mapping[str, Numbers],
    results: Mapping[str, tuple[Paired, float, str]],
    ranks: Mapping[str, Mapping[str, int]],
) -> Table:
    columns = [
        Heading("strategy"),
        Heading("best trial"),
        Heading("failed trials"),
        Heading("settings of the best trial"),
    ]
    columns += [Heading(name, goal.digits, estimates=True) for name in ("default", "tuned", "difference")]
    columns += [
        Heading("p (Holm)", 3),
        Heading("verdict"),
        Heading("rank, default"),
        Heading("rank, tuned"),
    ]
    rows: list[Sequence[Any]] = []
    for name, one in best.items():
        result, p, verdict = results[name]
        row = [name, one["trial"], len(one["failures"]), settings_text(one["settings"])]
        row += [interval(numbers[name], cell, goal) for cell in (DEFAULT, TUNED)]
        row += [result.difference, p if result.difference.n > 1 else None, verdict]
        rows.append([*row, ranks[DEFAULT][name], ranks[TUNED][name]])
    caption = (
        f"{capital(goal.name)}: mean and 95% t interval over the seeds of the comparison, {SCALES}. The difference is "
        "tuned minus default on the same seed; p is from the paired t test, adjusted by Holm over the methods. A "
        f"difference is significant with at least {FEWEST_PAIRS} pairs and p below 0.05. Ranks compare means only: the "
        "sections report which differences between methods are significant. The best of "
        f"{tuning['trials']} trials was chosen on the tuning seeds only, so it can be worse than the defaults here."
    )
    return Table("tuning", "Default against tuned settings", caption, columns, rows)
