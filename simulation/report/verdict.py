"""Verdict of a report in sentences: the variants with the fewest bytes and seconds to target, and the best score."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulation.comparison.measures import (
    ROUNDS,
    SECONDS,
    TRAFFIC_MB,
    UPLINK_MB,
    WHOLE_TRAFFIC_MB,
    Measure,
    Numbers,
    metric_of,
)
from simulation.comparison.results import Group
from simulation.comparison.statistics import Paired
from simulation.report.findings import against, pairs_text, percent
from simulation.report.tables import capital, number_text

CHEAPEST = (
    (UPLINK_MB, "bytes sent to the server until the target", "MB"),
    (TRAFFIC_MB, "bytes in all until the target (downlink and probes too)", "MB"),
    (SECONDS, "seconds until the target", "s"),
)


@dataclass(frozen=True)
class Scale:
    """Scale of a cost in text: digits after the point, unit, and units per unit of the measure."""

    digits: int
    unit: str
    factor: float = 1.0

    def amount(self, value: float) -> str:
        """Text of a number with its unit."""
        return f"{number_text(value * self.factor, self.digits)} {self.unit}".strip()


def verdict(group: Group, numbers: Numbers) -> list[str]:
    """Sentences of the verdict: one on the runs that reached the target, one on each cost, one on the metric."""
    sentences = [_who_reached(group, numbers)]
    ranked = _candidates(group, numbers)
    if ranked:
        sentences += [_best(group, numbers, ranked, measure, title, unit) for measure, title, unit in CHEAPEST]
    else:
        every = list(group.runs)
        sentences.append(_best(group, numbers, every, WHOLE_TRAFFIC_MB, "bytes in all over the whole run", "MB"))
    stable = numbers.metric.stable
    known = [variant for variant in group.runs if numbers.reached(variant, stable.key).size]
    if known:
        name, _, over = stable.name.partition(", ")
        sentences.append(_best(group, numbers, known, stable, f"{name} ({over})", ""))
    return sentences


def target_text(group: Group) -> str:
    """Text of the target, where all runs have the same."""
    targets = {float(run.config["target"]) for run in group.all_runs}
    return f"{metric_of(group.all_runs).name} {targets.pop():g}" if len(targets) == 1 else "its target"


def _who_reached(group: Group, numbers: Numbers) -> str:
    shares = {name: (numbers.reached(name, ROUNDS.key).size, len(runs)) for name, runs in group.runs.items()}
    counts = ", ".join(f"{name} in {reached} of {runs}" for name, (reached, runs) in shares.items())
    if not any(reached for reached, _ in shares.values()):
        return f"No run reached {target_text(group)}, so there are no costs to compare."
    if len(group.all_runs) == 1:
        return f"The run reached {target_text(group)}."
    if all(reached == runs for reached, runs in shares.values()):
        return f"Every run reached {target_text(group)}."
    return f"Runs that reached {target_text(group)}: {counts}. Only variants that reached it most often are ranked."


def _candidates(group: Group, numbers: Numbers) -> list[str]:
    """Variants with the largest share of runs that reached the target."""
    shares = {name: numbers.reached(name, ROUNDS.key).size / len(runs) for name, runs in group.runs.items()}
    best = max(shares.values())
    return [name for name, share in shares.items() if share == best and best > 0]


def _best(group: Group, numbers: Numbers, ranked: list[str], measure: Measure, title: str, unit: str) -> str:
    sign = -1.0 if measure.higher_wins else 1.0
    seeds = numbers.common_seeds(ranked, measure.key)
    means = {name: numbers.mean(name, measure.key, seeds) for name in ranked}
    order = sorted(ranked, key=lambda name: (sign * means[name], name))
    first = order[0]
    scale = Scale(measure.digits, unit)
    if unit == "MB" and means[first] < 0.1:
        scale = Scale(1, "kB", 1000.0)
    runs = numbers.reached(first, measure.key).size
    over = "one run" if runs == 1 else f"mean of {runs} runs"
    if 0 < len(seeds) < runs:
        over = f"mean over the {len(seeds)} seeds that all ranked have" if len(seeds) > 1 else "one seed that all have"
    if len(group.runs) > 1:
        fewest = "fewest " if unit else "lowest "
        title = ("highest " if measure.higher_wins else fewest) + title
    name = f"{first} (the baseline)" if first == group.baseline and len(group.runs) > 1 else first
    sentence = f"{capital(title)}: {name}, {scale.amount(means[first])} ({over})."
    others = [name for name in group.runs if name != first]
    results = against(numbers, first, others, measure)
    if len(order) > 1:
        sentence += " " + _compared("the next", order[1], results, scale)
    if first != group.baseline and group.baseline not in order[1:2]:
        sentence += " " + _compared("the baseline", group.baseline, results, scale)
    return sentence


def _compared(role: str, other: str, results: Mapping[str, tuple[Paired, float, str]], scale: Scale) -> str:
    paired, _, verdict = results[other]
    difference = paired.difference
    if difference.n == 0:
        return f"Against {role}, {other}: no seed in which both have the number."
    share = f" ({abs(percent(paired)):.0f}%)" if np.isfinite(percent(paired)) and scale.unit else ""
    direction = "less" if difference.mean < 0 else "more"
    interval = (
        f"; 95% interval of the paired difference {scale.amount(difference.low)} to {scale.amount(difference.high)}"
        if np.isfinite(difference.low)
        else ""
    )
    amount, pairs = scale.amount(abs(difference.mean)), pairs_text(paired, verdict, len(results))
    return f"Against {role}, {other}: {amount}{share} {direction}{interval}, {pairs}"
