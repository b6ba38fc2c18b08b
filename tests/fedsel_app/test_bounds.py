import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from fedsel_app.messages.reported_values import LONGEST, lower_median, one_line, winsorised
from fedsel_app.wire.codec import WireError
from simulation.apps.client.messages import refuse_endless

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0], 3.0), ([1.0, 9.0], 1.0), ([9.0, 1.0, 2.0], 2.0), ([NAN, 4.0, NAN, 6.0], 4.0), ([1.0, INF, INF], INF)],
)
def test_the_lower_median_by_hand(values, expected):
    assert lower_median(np.array(values)) == expected


@pytest.mark.parametrize(
    ("values", "multiple", "expected"),
    [
        ([1.0, 2.0, 1000.0], 3.0, [1.0, 2.0, 6.0]),
        ([1.0, 2.0, 6.0], 3.0, [1.0, 2.0, 6.0]),
        ([-1.0, 2.0, -1000.0, 3.0], 3.0, [-1.0, 2.0, -6.0, 3.0]),
        ([1.0, 2.0, INF, NAN], 3.0, [1.0, 2.0, 6.0, NAN]),
        ([1.0, 2.0, 1000.0], 0.0, [1.0, 2.0, 1000.0]),
        ([0.0, 0.0, 5.0], 3.0, [0.0, 0.0, 5.0]),
        ([NAN, NAN], 3.0, [NAN, NAN]),
        ([], 3.0, []),
    ],
)
def test_winsorising_by_hand(values, multiple, expected):
    given = np.array(values)
    np.testing.assert_array_equal(winsorised(given, multiple), expected)
    np.testing.assert_array_equal(given, values)


def test_the_median_may_be_that_of_a_larger_group():
    np.testing.assert_array_equal(winsorised(np.array([50.0, 3.0]), 2.0, np.array([50.0, 1.0, 3.0, 2.0])), [4.0, 3.0])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\x1b[31m\t c", "a b [31m c"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * (LONGEST + 1), "x" * LONGEST + " ..."),
        ("x" * 3_000_000, "x" * LONGEST + " ..."),
        (" " * 1199 + "xy", "x"),
    ],
)
def test_a_clients_text_is_cut_to_a_line(text, line):
    assert one_line(text) == line


MIB = 2**20
FULL = [
    {f"m{number}": 1.0 for number in range(1000)},
    {"m": b"x" * (MIB - 1)},
    {"m" * (MIB - 8): 1},
    {"curve": [0.5] * (MIB // 8 - 1)},
    {"words": ["12345678", "1"] * 100_000, "m": "x" * (MIB - 900_006)},
]
"""Metrics that reach one of the bounds: their number, or the bytes of a name, of text, or of 8 bytes a number."""


@pytest.mark.parametrize("metrics", FULL, ids=["number", "bytes", "name", "list", "words"])
def test_metrics_are_taken_up_to_their_bounds(metrics):
    refuse_endless(RecordDict({"m": ConfigRecord(metrics)}))
    with pytest.raises(
        WireError, match=r"a reply may have at most 1000 metrics, and 1001|at most 1048576 bytes, and 10"
    ):
        refuse_endless(RecordDict({"m": ConfigRecord(metrics), "more": MetricRecord({"one more": 1.0})}))
