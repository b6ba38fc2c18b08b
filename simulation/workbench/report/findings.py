"""Findings of a report: measures of the variants of a group, and significance of their differences."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from simulation.workbench.comparison.measures import (
    CLIENT_UPDATES,
    ROUNDS,
    SECONDS,
    TRAFFIC_MB,
    UPLINK_MB,
    WHOLE_TRAFFIC_MB,
    Measure,
    Numbers,
)
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.statistics import (
    FEWEST_PAIRS,
    Paired,
    holm,
    paired,
)
from simulation.workbench.report.tables import FREE, Heading, Spread, Table, capital

Key = TypeVar("Key", bound=Hashable)
COMPARED = (ROUNDS, SECONDS, UPLINK_MB, TRAFFIC_MB, CLIENT_UPDATES)
"""Measures for comparing variants, in addition to the metric of the report."""
SIGNIFICANT, NOT_SIGNIFICANT = "significant after Holm", "not significant after Holm"
TOO_FEW = "too few seeds for a test"


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
    caption = (
        f"{capital(numbers.metric.name)}: mean over the runs of a variant (one run a seed) and standard deviation. "
        f"The other columns are totals of whole runs, averaged over the same runs. 1 MB is 10⁶ "
        "bytes; all traffic is uplink, downlink, probes and calibration. Wall time is the duration of the computation, "
        "not simulated time."
    )
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
        f"The variant minus the baseline {baseline} on the same seed (same partition, links and initial model): "
        f"mean over the seeds on which both have a value and, from {FEWEST_PAIRS} pairs on, its 95% t interval. p is "
        "from the paired t test, adjusted by Holm over all variants of a measure. A difference is significant with at "
        f"least {FEWEST_PAIRS} pairs and p below 0.05."
    )
    return Table("differences", f"Against the baseline {baseline}", caption, columns, rows)


def percent(result: Paired) -> float:
    """Difference in percent of the size of the other's mean; NaN if that is 0 or unknown."""
    return 100.0 * result.difference.mean / abs(result.other_mean) if result.other_mean else np.nan


def finding_tables(group: Group, numbers: Numbers) -> list[Table]:
    """Tables of this module. The comparing table needs at least two variants."""
    tables = [score_table(group, numbers)]
    return [*tables, difference_table(group, numbers)] if len(group.runs) > 1 else tables
