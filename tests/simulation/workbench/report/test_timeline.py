"""Who trained when, by hand: waiting, wasted work, staleness, speed classes, and scores at equal costs."""

import csv
import json

import pytest

from simulation.workbench.cli import main
from simulation.workbench.comparison.results import Group, RecordedComparison
from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run
from simulation.workbench.report.drawing import Style
from simulation.workbench.report.timeline import (
    AGGREGATED,
    UNDER_WAY,
    WASTED,
    timeline_plot,
    trips_of,
    under_way,
)
from tests.support.pictures import draw_blank_pictures
from tests.support.report_runs import write_plan, write_run

LEFT = [{"client": 0, "reason": "it left after 1.0 s: see 'availability'"}]
LEFT += [{"client": 2, "reason": "it left after 3.0 s: see 'availability'"}]
ROWS = [
    {"selected": [0, 1, 2], "begun_s": 0.5, "aggregated": [0, 1], "arrived_s": [1.0, 2.0], "staleness": [0, 0]},
    {"selected": [0, 3], "begun_s": 0.0, "aggregated": [3], "arrived_s": [1.0], "staleness": [0], "wasted_s": 4.0},
    {"selected": [0, 1], "begun_s": 0.0, "aggregated": [1], "arrived_s": [1.0], "staleness": [1]},
]
"""Three rounds of a buffered server, which end at 2, 5 and 6 s. Client 0 leaves at 3 s, and client 2 at 3.5 s."""


@pytest.fixture
def folder(tmp_path):
    run = tmp_path / "run"
    write_run(run, "random", 1, [0.5, 0.6, 0.7], clients=4)
    rows = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    times = {"round_s": [2.0, 3.0, 1.0], "time_s": [2.0, 5.0, 6.0], "failures": [[], LEFT, []]}
    for place, (row, own) in enumerate(zip(rows, ROWS, strict=True)):
        row |= own | {name: values[place] for name, values in times.items()}
    (run / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def table(folder, name):
    return list(csv.DictReader((folder / f"report-{name}.csv").open(encoding="utf-8")))


def test_trips_by_hand(folder):
    trips = trips_of(read_recorded_run(folder, "run", {}, RecordedRun))
    assert [(trip.client, trip.begun_s, trip.ended_s, trip.outcome) for trip in trips] == [
        (0, 0.5, 1.0, AGGREGATED),
        (1, 0.5, 2.0, AGGREGATED),
        (0, 2.0, 3.0, WASTED),
        (3, 2.0, 3.0, AGGREGATED),
        (2, 0.5, 3.5, WASTED),
        (1, 5.0, 6.0, AGGREGATED),
        (0, 5.0, 6.0, UNDER_WAY),
    ]
    times, counts = under_way(trips)
    assert times.tolist() == [0.5, 1.0, 2.0, 3.0, 3.5, 5.0, 6.0]
    assert counts.tolist() == [3, 2, 3, 1, 0, 2, 0]


def test_the_report_of_a_run_shows_its_clock(folder, monkeypatch):
    """9 s of training in three places for 6 s, 4 of them in vain. Mean trips: 0.83, 1.25, 3 and 1 s."""
    draw_blank_pictures(monkeypatch)
    assert main(["report", str(folder)]) == 0
    [row] = table(folder, "clock")
    numbers = [float(value) for name, value in row.items() if name != "variant"]
    assert numbers == pytest.approx([6, 3, 50, 100 * 4 / 9, 0.25, 1, 50, 50, 0, 0.7, 0.7, 0.7])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Who trained when" in page


def test_scores_at_equal_costs(tmp_path, monkeypatch):
    """oort ends after two rounds, with 4 updates, 1.5 MB and 20 s; random has the accuracy 0.6 then."""
    accuracies = {"random": [0.5, 0.6, 0.7], "oort": [0.5, 0.9]}
    plan = write_plan(tmp_path, [("random", 1, {}), ("oort", 1, {})])
    for path, (name, values) in zip(plan, accuracies.items(), strict=True):
        write_run(path, name, 1, values)
    draw_blank_pictures(monkeypatch)
    assert main(["report", str(tmp_path)]) == 0
    costs = ("4 client updates", "1.5 MB of all traffic", "20 seconds")
    rows = {row["variant"]: [row[f"accuracy at {cost}"] for cost in costs] for row in table(tmp_path, "clock")}
    assert rows == {"random": ["0.6"] * 3, "oort": ["0.9"] * 3}
    assert "waiting" not in (tmp_path / "report-clock.tex").read_text().partition("\\toprule")[2]


def test_the_legend_has_the_outcomes_that_are_drawn(folder):
    """It was an empty box."""
    group = Group("", {"random": tuple(RecordedComparison.read(folder).runs.values())}, "random")
    outcomes = {trip.outcome for trip in trips_of(group.all_runs[0])}
    [legend] = timeline_plot(group, Style()).figure.legends
    assert {text.get_text() for text in legend.get_texts()} == outcomes
