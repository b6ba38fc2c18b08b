"""Summary of a run whose method has rounds of its own."""

import numpy as np

from fedsel_app.records.schema import schedule_round
from fedsel_app.records.summary import summarize

ROWS = [
    {"round": 1, "method_round": 1, "iteration": 1, "time_s": 1.0, "total_uplink_bytes": 10},
    {"round": 2, "method_round": 1, "iteration": 2, "time_s": 2.0, "total_uplink_bytes": 14, "accuracy": 0.4},
    {"round": 3, "method_round": 2, "iteration": 1, "time_s": 3.0, "total_uplink_bytes": 24},
    {"round": 4, "method_round": 2, "iteration": 2, "time_s": 4.0, "total_uplink_bytes": 28, "accuracy": 0.6},
]


def test_rounds_are_the_methods_own_and_costs_are_all():
    rows = [row | {"failures": [], "total_uplink_value_bytes": row["total_uplink_bytes"]} for row in ROWS]
    summary = summarize(rows, {"strategy": "own", "seed": 1, "target": 0.5}, np.ones(3, np.int64), 7)
    assert (summary.rounds, summary.rounds_to_target) == (2, 2)
    assert (summary.time_to_target_s, summary.uplink_to_target_mb) == (4.0, 28e-6)
    assert [schedule_round(row) for row in ROWS] == [1, 1, 2, 2]
    assert schedule_round({"round": 7}) == 7
