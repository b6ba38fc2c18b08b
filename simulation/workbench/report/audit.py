"""Audit tables of a report: participation, accuracies of clients, the runs, and failures."""

from collections.abc import Iterable

import numpy as np

from fedsel_app.config.run import score_title
from simulation.workbench.comparison.measures import EvaluatedMetric, client_metric
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import jain
from simulation.workbench.report.tables import Heading, Table, capital


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
    caption = (
        "Means over the runs of each variant. Jain is 1 if all clients are selected equally often, and 1/K if only one "
        "is ever selected."
    )
    return Table("participation", "Who took part", caption, columns, rows)


def client_table(group: Group, metric: EvaluatedMetric) -> Table | None:
    """Table of the last values of the metric on the clients' own test parts; None if no run measured it."""
    metric = client_metric(group.all_runs, metric)
    worst, best = (np.min, np.max) if metric.higher_wins else (np.max, np.min)
    columns = [
        Heading("variant"),
        Heading("runs"),
        Heading("mean of clients", 4),
        Heading("standard deviation", 4),
    ]
    columns += [Heading("worst tenth", 4), Heading("worst client", 4), Heading("best client", 4)]
    rows = []
    for name, runs in group.runs.items():
        last = [values[max(values)] for run in runs if (values := run.client_scores(metric.key))]
        if last:
            figures = [(one.mean(), one.std(), metric.worst_tenth(one), worst(one), best(one)) for one in last]
            rows.append([name, len(last), *(float(value) for value in np.mean(figures, axis=0))])
    caption = (
        f"{capital(metric.name)} of the global model after the last evaluated round on each client's own test part; "
        "means over the runs. The worst tenth is the mean over the tenth of the clients with the worst value, at least "
        "one client."
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
    caption = (
        "All runs with a finished round. Client failures: the server selected or probed a client, and received nothing "
        "usable from it."
    )
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
