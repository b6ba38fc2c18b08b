"""Answer of a report, with which it opens: the variants ranked in a short table, and the verdict in sentences."""

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console

from simulation.comparison.measures import ROUNDS, SECONDS, UPLINK_MB, Numbers
from simulation.comparison.results import Group
from simulation.report.findings import NOT_SIGNIFICANT, SIGNIFICANT, TOO_FEW, against
from simulation.report.tables import ABSENT, Column, Table, capital
from simulation.terminal import whole_table

PLACES = {SIGNIFICANT: "behind", NOT_SIGNIFICANT: "tied", TOO_FEW: "too few seeds"}
"""Verdict on the difference from the first -> its word in the table."""
WORDS = ("method", "variant", "against the first")
"""Columns of text, which are aligned on the left."""


def ranking_table(group: Group, numbers: Numbers) -> Table:
    """Table of the variants by their mean score: scores, costs to target, and whether the first is ahead."""
    score, final = numbers.metric.stable, numbers.metric.final
    sign = -1.0 if score.higher_wins else 1.0

    order = sorted(group.runs, key=lambda variant: np.nan_to_num(sign * numbers.mean(variant, score.key), nan=np.inf))
    results = against(numbers, order[0], order[1:], score)
    columns = [
        Column("rank"),
        Column("method"),
        Column(score.name, 4),
        Column("final", 4),
        Column("reached the target"),
    ]
    columns += [Column(measure.name, measure.digits) for measure in (UPLINK_MB, SECONDS, ROUNDS)]
    columns += [Column("against the first")]
    rows = []
    for rank, variant in enumerate(order, start=1):
        reached = f"{numbers.reached(variant, ROUNDS.key).size} of {len(group.runs[variant])}"
        place = PLACES[results[variant][2]] if variant in results else "first" if len(order) > 1 else ABSENT
        costs = [numbers.mean(variant, measure.key) for measure in (UPLINK_MB, SECONDS, ROUNDS)]
        rows.append(
            [rank, variant, numbers.mean(variant, score.key), numbers.mean(variant, final.key), reached, *costs, place]
        )
    caption = (
        f"{capital(score.name)}, over the seeds, ranks the methods; costs are of the runs that reached the target. "
        "Tied: the difference from the first is not significant (paired t test over the seeds, Holm over the methods)."
    )
    return Table("ranking", "Ranking", caption, columns, rows)


def print_answer(console: Console, name: str, table: Table, sentences: Sequence[str]) -> None:
    """Print the ranking and the sentences of the cell `name`, which is empty if there is only one."""
    print_table(console, name, table)
    print_lines(console, sentences)


def print_table(console: Console, name: str, table: Table) -> None:
    """Print a table of the cell `name`, without the columns that are empty in every row."""
    table = table.without_empty()
    words = [place for place, column in enumerate(table.columns) if column.name in WORDS]
    shown = whole_table(
        table.columns[0].name,
        numbers=tuple(column.name for column in table.columns[1:]),
        title=f"{name}: {table.title}" if name else table.title,
    )
    for place in words:
        shown.columns[place].justify = "left"
    for row in table.texts():
        shown.add_row(*row)
    console.print(shown)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are, each whole."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
