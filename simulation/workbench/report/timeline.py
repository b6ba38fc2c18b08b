"""Clients over time: a run's trips, and the report's figure of who trains when.

A trip is a client's way from the moment in which it is sent the model until its reply has arrived, or is no longer
awaited. For a client that left before, the records have only the sum of its round.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import RecordedRun
from simulation.workbench.comparison.statistics import Floats
from simulation.workbench.report.drawing import Plot, Style
from strategies.round.replies.deadline import seconds_until_left

AGGREGATED, WASTED, UNDER_WAY = "aggregated", "not aggregated", "under way at the end"
OUTCOMES = {AGGREGATED: "#0072B2", WASTED: "#D55E00", UNDER_WAY: "#999999"}
"""Outcome of a trip -> colour."""


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


def timeline_plot(group: Group, style: Style) -> Plot | None:
    """Figure of the trips of a run of each variant; None without times of arrival."""
    runs = {name: runs[0] for name, runs in group.runs.items() if trips_of(runs[0])}
    if not runs:
        return None
    figure, panels = style.grid(len(runs), 3.4)
    for panel, (name, run) in zip(panels, runs.items(), strict=False):
        trips = trips_of(run)
        mean_s = durations(trips, int(run.config["clients"]))
        rank = np.argsort(np.argsort(mean_s, kind="stable"), kind="stable")
        width = min(5.0, 140.0 / mean_s.size)
        for outcome, colour in OUTCOMES.items():
            lines = [
                [(trip.begun_s, rank[trip.client]), (trip.ended_s, rank[trip.client])]
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
