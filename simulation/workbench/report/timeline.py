"""Clients over time: a run's trips, and the report's table and figure of who trains when.

A trip is a client's way from the moment in which it is sent the model until its reply has arrived, or is no longer
awaited. For a client that left before, the records have only the sum of its round.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from simulation.workbench.comparison.measures import Numbers
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import TRAFFIC, RecordedRun
from simulation.workbench.comparison.statistics import Floats, step_values
from simulation.workbench.report.drawing import Plot, Style
from simulation.workbench.report.tables import Heading, Table
from strategies.round.replies.deadline import seconds_until_left

AGGREGATED, WASTED, UNDER_WAY = "aggregated", "not aggregated", "under way at the end"
OUTCOMES = {AGGREGATED: "#0072B2", WASTED: "#D55E00", UNDER_WAY: "#999999"}
"""Outcome of a trip -> colour."""
CLASSES = ("fast", "middle", "slow")
"""Speed classes of clients: thirds by the mean duration of their trips."""
COSTS: Mapping[str, Callable[[RecordedRun], Floats]] = {
    "client updates": lambda run: run.cumulative("client_updates"),
    "MB of all traffic": lambda run: run.cumulative(*TRAFFIC) / 1e6,
    "seconds": lambda run: run.cumulative("round_s"),
}
"""Cost -> what a run has spent after each round, float64 (T,)."""


@dataclass(frozen=True)
class DrawnTrip:
    """Trip of a client: its begin and end on the run's clock in seconds, and its outcome, a key of `OUTCOMES`."""

    client: int
    begun_s: float
    ended_s: float
    outcome: str

    @property
    def seconds(self) -> float:
        """Duration."""
        return self.ended_s - self.begun_s


def trips_of(run: RecordedRun) -> list[DrawnTrip]:
    """Trips of a run, in the order of their ends; empty if its records have no times of arrival."""
    begun, trips, end_s = dict[int, float](), list[DrawnTrip](), 0.0
    for row in run.rows:
        start_s, end_s = end_s, row["time_s"]
        begun |= dict.fromkeys(row["selected"], start_s + row.get("begun_s", 0.0))
        arrivals = zip(row["aggregated"], row.get("arrived_s", []), strict=False)
        ended = {client: (start_s + arrived_s, AGGREGATED) for client, arrived_s in arrivals}
        lost = dict.fromkeys(row["unused"]) | {
            failure["client"]: seconds_until_left(failure["reason"]) for failure in row["failures"]
        }
        for client in begun.keys() & lost.keys():
            seconds = lost[client]
            ended[client] = end_s if seconds is None else min(begun[client] + seconds, end_s), WASTED
        trips += sorted((DrawnTrip(client, begun.pop(client), *how) for client, how in ended.items()), key=_end)
    trips += [DrawnTrip(client, begun_s, end_s, UNDER_WAY) for client, begun_s in begun.items()]
    return trips if any("arrived_s" in row for row in run.rows) else []


def _end(trip: DrawnTrip) -> tuple[float, int]:
    return trip.ended_s, trip.client


def durations(trips: Sequence[DrawnTrip], clients: int) -> Floats:
    """Mean duration of each client's trips, float64 (K,); NaN without one."""
    count, total, mean = np.zeros(clients), np.zeros(clients), np.full(clients, np.nan)
    for trip in trips:
        count[trip.client] += 1.0
        total[trip.client] += trip.seconds
    np.divide(total, count, out=mean, where=count > 0.0)
    return mean


def under_way(trips: Sequence[DrawnTrip]) -> tuple[Floats, Floats]:
    """Times at which the number of training clients changes, and the number from then on."""
    times = np.concatenate([[trip.begun_s for trip in trips], [trip.ended_s for trip in trips]])
    steps = np.repeat([1.0, -1.0], len(trips))
    order = np.argsort(times, kind="stable")
    moments, first = np.unique(times[order], return_index=True)
    return moments, np.add.reduceat(steps[order], first).cumsum()


def clock_table(group: Group, numbers: Numbers) -> Table:
    """Table of the clients' time, and of the metric at equal client updates, bytes and seconds.

    A run without times of arrival has no numbers of the first kind. The costs are what every run of the group has paid.
    """
    columns = [Heading("variant"), Heading("seconds", 1), Heading("most clients at once", 1)]
    columns += [Heading("of their time: waiting, %", 1), Heading("wasted, %", 1)]
    columns += [Heading("staleness, mean", 2), Heading("largest", 1)]
    columns += [Heading(f"% of the updates from the {name} third", 1) for name in CLASSES]
    rows: list[list[str | float]] = []
    for name, runs in group.runs.items():
        measured = [_of_clock(run) for run in runs if trips_of(run)] or [[np.nan] * (len(columns) - 1)]
        rows.append([name, *(float(np.mean(values)) for values in zip(*measured, strict=True))])
    for label, spent in COSTS.items():
        budget = min(float(spent(run)[-1]) for run in group.all_runs)
        columns.append(Heading(f"{numbers.metric.name} at {budget:.4g} {label}", 4))
        for row, runs in zip(rows, group.runs.values(), strict=True):
            values = np.array([_at(numbers.metric.values(run), spent(run), budget) for run in runs])
            row.append(float(values[np.isfinite(values)].mean()) if np.isfinite(values).any() else np.nan)
    caption = (
        "Means over the runs of each variant. Waiting is the share of the time of the places (the most clients that "
        "train at once) in which no client trains there. Wasted is the share of the clients' time after which nothing "
        "was aggregated: they were late, failed or left. Staleness is in steps of the server. The thirds are those of "
        "the clients that took part, by the mean seconds from the dispatch of the model to the reply. The last columns "
        "have the last evaluation within a cost that every run has paid. All traffic counts a download for each client "
        "that is sent the model, also if its update is never used."
    )
    return Table("clock", "Time of the clients, and equal costs", caption, columns, rows)


def _of_clock(run: RecordedRun) -> list[float]:
    """Numbers of a run in `clock_table`."""
    trips, seconds = trips_of(run), float(run.rows[-1]["time_s"])
    mean_s = durations(trips, int(run.config["clients"]))
    took_part = np.flatnonzero(np.isfinite(mean_s))
    thirds = np.array_split(took_part[np.argsort(mean_s[took_part], kind="stable")], len(CLASSES))
    updates = np.zeros(mean_s.size)
    for trip in trips:
        updates[trip.client] += trip.outcome == AGGREGATED
    late = [steps for row in run.rows for steps in row.get("staleness", [])] or [0]
    busy_s, places = sum(trip.seconds for trip in trips), under_way(trips)[1].max()
    wasted_s = sum(trip.seconds for trip in trips if trip.outcome == WASTED)
    return [
        seconds,
        places,
        100.0 * (1.0 - busy_s / max(places * seconds, 1e-300)),
        100.0 * wasted_s / max(busy_s, 1e-300),
        float(np.mean(late)),
        max(late),
        *(100.0 * updates[third].sum() / max(updates.sum(), 1.0) for third in thirds),
    ]


def _at(values: pd.Series, spent: Floats, budget: float) -> float:
    """The last of the `values`, by the position of their round, for which at most `budget` was spent; NaN: none."""
    return float(step_values(spent[values.index], values, [budget])[0]) if len(values) else np.nan


def timeline_plot(group: Group, style: Style) -> Plot | None:
    """Figure of the trips of a run of each variant; None without times of arrival."""
    runs = {name: runs[0] for name, runs in group.runs.items() if trips_of(runs[0])}
    if not runs:
        return None
    figure, panels = style.grid(len(runs), 3.4)
    for panel, (name, run) in zip(panels, runs.items(), strict=False):
        trips = trips_of(run)
        mean_s = durations(trips, int(run.config["clients"]))
        place = np.argsort(np.argsort(mean_s, kind="stable"), kind="stable")
        width = min(5.0, 140.0 / mean_s.size)
        for outcome, colour in OUTCOMES.items():
            lines = [
                [(trip.begun_s, place[trip.client]), (trip.ended_s, place[trip.client])]
                for trip in trips
                if trip.outcome == outcome
            ]
            label = outcome if lines else ""
            panel.add_collection(LineCollection(lines, colors=colour, linewidths=width, label=label))
            starts = [line[0] for line in lines]
            panel.plot(*np.array(starts).reshape(-1, 2).T, "|", color="#000000", markersize=width, markeredgewidth=0.5)
        for row in run.rows:
            panel.axvline(row["time_s"], color="#000000", linewidth=0.4, alpha=0.4)
        panel.set_xlim(0.0, run.rows[-1]["time_s"])
        panel.set_ylim(mean_s.size - 0.5, -0.5)
        panel.set_title(f"{name}, seed {run.seed}", fontsize=10)
        panel.set_xlabel("seconds")
        panel.set_ylabel("clients, the fastest first")
        panel.grid(visible=False)
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
    style.legend(figure, list(OUTCOMES))
    caption = (
        "A bar is a client's way from the dispatch of the model to the arrival of its reply, for the first seed of "
        "each variant. Vertical lines are steps of the server. Clients are sorted by the mean length of their bars."
    )
    return Plot("timeline", "Who trained when", caption, figure)
