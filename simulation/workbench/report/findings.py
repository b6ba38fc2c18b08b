"""Findings of a report, as tables: measures of the variants and their differences, participation, clients, failures."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedsel_app.config.run import score_title
from simulation.workbench.comparison.measures import (
    CLIENT_UPDATES,
    ROUNDS,
    SECONDS,
    TRAFFIC_MB,
    UPLINK_MB,
    WHOLE_TRAFFIC_MB,
    EvaluatedMetric,
    Measure,
    Numbers,
    client_metric,
    metric_of,
)
from simulation.workbench.comparison.plan_files import CELL, DEFAULT, TUNED, read_tuning, settings_text
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import FEWEST_PAIRS, Paired, holm, jain, paired
from simulation.workbench.report.tables import FREE, Heading, Spread, Table, capital

Key = TypeVar("Key", bound=Hashable)
COMPARED = (ROUNDS, SECONDS, UPLINK_MB, TRAFFIC_MB, CLIENT_UPDATES)
"""Measures for comparing variants, in addition to the metric of the report."""
SIGNIFICANT, NOT_SIGNIFICANT = "significant after Holm", "not significant after Holm"
TOO_FEW = "too few seeds for a test"
KIND = "Each method with the settings of its best trial."
"""Sentence on the settings that all tuned methods share."""


def against(
    numbers: Numbers, variant: str, others: Sequence[str], measure: Measure
) -> dict[str, tuple[Paired, float, str]]:
    """Paired comparison of a variant with each of `others`: the pairs, Holm's p over all, and the verdict as text."""
    results = [paired(*numbers.pairs(variant, other, measure.key)) for other in others]
    return judged(dict(zip(others, results, strict=True)))


def judged(results: Mapping[Key, Paired]) -> dict[Key, tuple[Paired, float, str]]:
    """Paired comparisons with Holm's p over all of them, and the verdict on each as text."""
    adjusted = holm([result.p for result in results.values()])
    results = {key: _without_weak_interval(result) for key, result in results.items()}
    return {key: (result, p, judge(result, p)) for (key, result), p in zip(results.items(), adjusted, strict=True)}


def _without_weak_interval(result: Paired) -> Paired:
    """The comparison, without its interval if it has fewer than `FEWEST_PAIRS` pairs; such an interval carries no
    information.
    """
    few = 0 < result.difference.n < FEWEST_PAIRS
    return replace(result, difference=replace(result.difference, low=np.nan, high=np.nan)) if few else result


def judge(result: Paired, adjusted_p: float) -> str:
    """Verdict as text: a paired difference is significant, is not significant, or has too few seeds."""
    if result.difference.n < FEWEST_PAIRS:
        return TOO_FEW
    return SIGNIFICANT if result.more_than_noise(adjusted_p) else NOT_SIGNIFICANT


def p_text(p: float) -> str:
    """Text of a p-value after Holm's adjustment."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def pairs_text(result: Paired, p: float, verdict: str) -> str:
    """Text on the pairs of a comparison, its verdict and p; with too few seeds, on the number that is needed."""
    pairs = "one pair" if result.difference.n == 1 else f"{result.difference.n} pairs"
    more = f"; at least {FEWEST_PAIRS} pairs are needed" if verdict == TOO_FEW else f", {p_text(p)}"
    return f"{pairs}: {verdict}{more}."


def score_table(group: Group, numbers: Numbers) -> Table:
    """Table of the metric and of whole-run costs, one line per variant."""
    columns = [Heading("variant"), Heading("runs")]
    columns += [Heading(measure.name, measure.digits, spreads=True) for measure in numbers.metric.levels]
    totals = (
        ("seconds", "time_s", 1),
        ("MB, value bytes", "uplink_value_mb", 3),
        ("MB, uplink", "uplink_mb", 3),
        (WHOLE_TRAFFIC_MB.name, WHOLE_TRAFFIC_MB.key, 3),
        ("client updates", "client_updates", 0),
        ("wall time in s", "wall_s", 1),
    )
    columns += [Heading(name, digits) for name, _, digits in totals]
    rows = [
        [variant, len(runs)]
        + [Spread.of(numbers.reached(variant, measure.key)) for measure in numbers.metric.levels]
        + [float(numbers.values(variant, key).mean()) for _, key, _ in totals]
        for variant, runs in group.runs.items()
    ]
    caption = "Means over the runs, with standard deviations. 1 MB is 10⁶ bytes. Wall time is not simulated."
    return Table("score", f"{capital(numbers.metric.name)} and cost of whole runs", caption, columns, rows)


def difference_table(group: Group, numbers: Numbers) -> Table:
    """Table of differences from the baseline, paired by seed."""
    baseline = group.baseline.replace("=", " ")
    columns = [Heading("measure"), Heading("variant"), Heading("pairs"), Heading(f"mean of {baseline}", FREE)]
    columns += [Heading("difference", FREE, estimates=True), Heading("difference in %", 1), Heading("p (Holm)", 3)]
    columns += [Heading("verdict")]
    others = [variant for variant in group.runs if variant != group.baseline]
    rows = []
    for measure in (numbers.metric.stable, *COMPARED):
        results = judged({other: paired(*numbers.pairs(other, group.baseline, measure.key)) for other in others})
        for variant, (result, p, verdict) in results.items():
            row = [measure.name, variant, result.difference.n, result.other_mean, result.difference]
            rows.append([*row, percent(result), p if result.difference.n > 1 else None, verdict])
    caption = (
        "The variant minus the baseline on the same seed, with its 95% t interval. p is Holm's, of the paired t test."
    )
    return Table("differences", f"Against the baseline {baseline}", caption, columns, rows)


def percent(result: Paired) -> float:
    """Difference in percent of the size of the other's mean; NaN if that is 0 or unknown."""
    return 100.0 * result.difference.mean / abs(result.other_mean) if result.other_mean else np.nan


def finding_tables(group: Group, numbers: Numbers) -> list[Table]:
    """Tables of this module. The comparing table needs at least two variants."""
    tables = [score_table(group, numbers)]
    return [*tables, difference_table(group, numbers)] if len(group.runs) > 1 else tables


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
        row = [groups[name].all_runs[0].strategy, best["trial"], len(best["failures"]), settings_text(best["settings"])]
        row += [Spread.of(numbers[name].reached(cell, goal.key)) for cell in (DEFAULT, TUNED)]
        rows.append([*row, result.difference, p if result.difference.n > 1 else None, verdict])
    over = ", ".join(f"{key} ({text})" for key, text in tuning["over"].items())
    budget = (
        f"Tuned: {tuning['trials']} trials of each method, the first with its default settings, over {over}. Trials "
        f"are ranked by {score.name} on a validation set, on the seeds {', '.join(map(str, tuning['tuning_seeds']))}; "
        "all results below are on other seeds."
    )
    caption = (
        "Means and standard deviations over the seeds. The difference is paired by seed; p is Holm's over the methods."
    )
    return [budget], Table("tuning", "Default against tuned settings", caption, columns, rows)


def _groups(comparison: RecordedComparison) -> dict[str, Group]:
    """Strategy, without its label -> its default and its tuned runs, for strategies with both."""
    runs_of: dict[str, dict[str, list[RecordedRun]]] = {}
    for run in comparison.counted:
        runs_of.setdefault(str(run.config["strategy"]), {}).setdefault(str(run.cell.get(CELL)), []).append(run)
    return {
        name: Group(name, {cell: tuple(cells[cell]) for cell in (DEFAULT, TUNED)}, DEFAULT)
        for name, cells in runs_of.items()
        if {DEFAULT, TUNED} <= cells.keys()
    }


def participation_table(group: Group) -> Table:
    """Table of the evenness of the selections, one row per variant."""
    columns = [Heading("variant"), Heading("clients a round", 2), Heading("selections a client, fewest", 1)]
    columns += [Heading("mean", 1), Heading("most", 1), Heading("never selected", 1), Heading("Jain", 3)]
    rows: list[list[object]] = []
    for name, runs in group.runs.items():
        every = [(run.selection_counts, len(run.rows)) for run in runs]
        numbers = [
            (of.sum() / rounds, of.min(), of.mean(), of.max(), (of == 0).sum(), jain(of)) for of, rounds in every
        ]
        rows.append([name, *map(float, np.mean(numbers, axis=0))])
    caption = "Means over the runs. Jain is 1 if all clients are selected equally often, and 1/K if only one ever is."
    return Table("participation", "Who took part", caption, columns, rows)


def client_table(group: Group, metric: EvaluatedMetric) -> Table | None:
    """Table of the last values of the metric on the clients' own test parts; None if no run measured it."""
    metric = client_metric(group.all_runs, metric)
    worst, best = (np.min, np.max) if metric.higher_wins else (np.max, np.min)
    columns = [Heading("variant"), Heading("runs"), Heading("mean of clients", 4), Heading("standard deviation", 4)]
    columns += [Heading("worst tenth", 4), Heading("worst client", 4), Heading("best client", 4)]
    rows = []
    for name, runs in group.runs.items():
        last = [values[max(values)] for run in runs if (values := run.client_scores(metric.key))]
        if last:
            figures = [(one.mean(), one.std(), metric.worst_tenth(one), worst(one), best(one)) for one in last]
            rows.append([name, len(last), *(float(value) for value in np.mean(figures, axis=0))])
    caption = (
        "Last evaluation on each client's own test part; means over the runs. The worst tenth has at least one client."
    )
    return Table("clients", f"{capital(metric.name)} by client", caption, columns, rows) if rows else None


def run_table(comparison: RecordedComparison) -> Table:
    """Table of the runs with a finished round."""
    scores = dict.fromkeys(score_title(run.score) for run in comparison.runs.values())
    columns = [*map(Heading, ("run", "strategy", "cell", "seed", "state", "rounds"))]
    columns += [Heading(f"final {' or '.join(scores)}", 4), Heading("rounds to target"), Heading("seconds", 1)]
    columns += [Heading("MB, uplink", 3), Heading("wall time in s", 1), Heading("client failures")]
    rows: list[list[object]] = []
    for run in comparison.runs.values():
        numbers = run.measures
        cell = ", ".join(f"{key}={value}" for key, value in run.cell.items())
        state = "finished" if run.finished else "unfinished"
        row: list[object] = [run.name, run.strategy, cell, run.seed, state, int(numbers["rounds"])]
        reached = numbers["rounds_to_target"]
        row += [numbers["final_accuracy"], int(reached) if np.isfinite(reached) else None, numbers["time_s"]]
        rows.append([*row, numbers["uplink_mb"], numbers["wall_s"], int(numbers["failure_count"])])
    caption = "All runs with a finished round. A client fails if it is selected or probed, and sends nothing usable."
    return Table("runs", "The runs", caption, columns, rows)


def failure_table(runs: Iterable[RecordedRun]) -> Table | None:
    """Table of client failures, and of who was left out at enrolment; None if there are none."""
    rows = [
        [run.name, number, client, reason]
        for run in runs
        for number, client, reason in [
            *((row["round"], row.get("client"), row["outcome"]) for row in run.client_rows if "outcome" in row),
            *((row["round"], failure["client"], failure["reason"]) for row in run.rows for failure in row["failures"]),
        ]
    ]
    columns = [Heading("run"), Heading("round"), Heading("client"), Heading("reason")]
    caption = "Clients that were not admitted, or whose replies were missing or unusable. The rounds went on without."
    return Table("failures", "Client failures", caption, columns, rows) if rows else None
