"""Who trained when, by hand."""

import json

import pytest

from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run
from simulation.workbench.report.timeline import (
    AGGREGATED,
    UNDER_WAY,
    WASTED,
    trips_of,
)
from tests.support.report_runs import write_run

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
