"""Answer at the beginning of a report: a short table that ranks the variants, and the verdict in sentences.

The sentences name the variants with the fewest bytes and seconds to target, and the one with the best score.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console

from simulation.workbench.comparison.measures import (
    ROUNDS,
    SECONDS,
    TRAFFIC_MB,
    UPLINK_MB,
    WHOLE_TRAFFIC_MB,
    Measure,
    Numbers,
    metric_of,
)
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.comparison.statistics import Paired
from simulation.workbench.report.findings import (
    NOT_SIGNIFICANT,
    SIGNIFICANT,
    TOO_FEW,
    against,
    p_text,
    pairs_text,
    percent,
)
from simulation.workbench.report.tables import ABSENT, Heading, Spread, Table, capital, number_text
from simulation.workbench.terminal import print_lines, whole_table

PLACES = {SIGNIFICANT: "behind", NOT_SIGNIFICANT: "open", TOO_FEW: "too few seeds"}
"""Verdict on the difference from the first -> its word in the table."""
WORDS = ("method", "variant", "against the first")
"""Columns of text, which are aligned on the left."""
CHEAPEST = (
    (UPLINK_MB, "bytes sent to the server until the target", "MB"),
    (TRAFFIC_MB, "bytes in all until the target (downlink and probes too)", "MB"),
    (SECONDS, "seconds until the target", "s"),
)


def variants_table(group: Group, numbers: Numbers) -> Table:
    """Table that ranks the variants by their mean score: scores, costs to target, and the verdict against the first.

    A single variant has no rank.
    """
    score, final = numbers.metric.stable, numbers.metric.final
    sign = -1.0 if score.higher_wins else 1.0

    order = sorted(group.runs, key=lambda variant: np.nan_to_num(sign * numbers.mean(variant, score.key), nan=np.inf))
    results = against(numbers, order[0], order[1:], score)
    columns = [Heading("rank"), Heading("method"), Heading(score.name, 4, spreads=True)]
    columns += [Heading("final", 4, spreads=True), Heading("reached the target")]
    columns += [Heading(measure.name, measure.digits, spreads=True) for measure in (UPLINK_MB, SECONDS, ROUNDS)]
    columns += [Heading("against the first")]
    rows = []
    for rank, variant in enumerate(order, start=1):
        reached_text = f"{numbers.reached(variant, ROUNDS.key).size} of {len(group.runs[variant])}"
        against_first = "first" if len(order) > 1 else ABSENT
        if variant in results:
            _, p, word = results[variant]
            against_first = PLACES[word] if word == TOO_FEW else f"{PLACES[word]}, {p_text(p)}"
        means = [
            Spread.of(numbers.reached(variant, measure.key)) for measure in (score, final, UPLINK_MB, SECONDS, ROUNDS)
        ]
        rows.append([rank if len(order) > 1 else "", variant, *means[:2], reached_text, *means[2:], against_first])
    caption = "Means and standard deviations over the seeds; costs of the runs that reached the target."
    caption += " Open: not significant (paired t test, Holm)." if len(order) > 1 else ""
    return Table("ranking", "Ranking" if len(order) > 1 else "Result", caption, columns, rows)


def print_rankings(console: Console, folder: Path) -> None:
    """Print what the methods of a comparison share, and the ranking in each of its cells."""
    comparison = RecordedComparison.read(folder)
    metric = metric_of(comparison.counted)
    print_lines(console, filter(None, dict.fromkeys(map(comparison.kind_of, comparison.groups))))
    for group in comparison.groups:
        print_table(console, group.title, variants_table(group, Numbers(group, metric)))


def print_table(console: Console, name: str, table: Table) -> None:
    """Print a table without its empty columns and deviations. `name` is its section's cell, or empty."""
    table = table.without_empty()
    text_columns = [index for index, column in enumerate(table.columns) if column.name in WORDS]
    rich_table = whole_table(
        table.columns[0].name,
        numbers=tuple(column.name for column in table.columns[1:]),
        title=f"{name}: {table.title}" if name else table.title,
    )
    for index in text_columns:
        rich_table.columns[index].justify = "left"
    for row in table.texts(spread=False):
        rich_table.add_row(*row)
    console.print(rich_table)


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
    variants = [variant for variant in group.runs if numbers.reached(variant, stable.key).size]
    if variants:
        name, _, over = stable.name.partition(", ")
        sentences.append(_best(group, numbers, variants, stable, f"{name} ({over})", ""))
    return sentences


def target_text(group: Group) -> str:
    """Text of the target: metric and value if all runs have the same target, else "its target"."""
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
    return (
        f"Runs that reached {target_text(group)}: {counts}. Costs are ranked only among the variants with the largest "
        "share of such runs."
    )


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
    runs = numbers.reached(first, measure.key).size
    over = "one run" if runs == 1 else f"mean of {runs} runs"
    if 0 < len(seeds) < runs:
        over = f"mean over the {len(seeds)} common seeds" if len(seeds) > 1 else "the only common seed"
    if len(group.runs) > 1:
        fewest = "fewest " if unit else "lowest "
        title = ("highest " if measure.higher_wins else fewest) + title
    name = f"{first} (the baseline)" if first == group.baseline and len(group.runs) > 1 else first
    sentence = f"{capital(title)}: {name}, {_amount(means[first], measure.digits, unit)} ({over})."
    others = [name for name in group.runs if name != first]
    results = against(numbers, first, others, measure)
    if len(order) > 1:
        sentence += " " + _compared("the next", order[1], results, measure.digits, unit)
    if first != group.baseline and group.baseline not in order[1:2]:
        sentence += " " + _compared("the baseline", group.baseline, results, measure.digits, unit)
    return sentence


def _amount(value: float, digits: int, unit: str) -> str:
    return f"{number_text(value, digits)} {unit}".strip()


def _compared(role: str, other: str, results: Mapping[str, tuple[Paired, float, str]], digits: int, unit: str) -> str:
    paired, p, verdict = results[other]
    difference = paired.difference
    if difference.n == 0:
        return f"Against {role}, {other}: no seed on which both have a value."
    share = f" ({abs(percent(paired)):.0f}%)" if unit and np.isfinite(percent(paired)) else ""
    direction = "less" if difference.mean < 0 else "more"
    interval = (
        f"; 95% interval of the paired difference {_amount(difference.low, digits, unit)} to "
        f"{_amount(difference.high, digits, unit)}"
        if np.isfinite(difference.low)
        else ""
    )
    size, pairs = _amount(abs(difference.mean), digits, unit), pairs_text(paired, p, verdict)
    return f"Against {role}, {other}: {size}{share} {direction}{interval}, {pairs}"
