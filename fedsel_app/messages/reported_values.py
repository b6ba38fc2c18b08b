"""Reported values: bounds for what a client reports: a multiple of the median for numbers, and lengths for the rest."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedsel_app.wire.codec import WireError

Floats = NDArray[np.float64]
LONGEST = 300
"""Largest number of characters that are kept of a client's text."""
MOST_RECORDS, MOST_METRICS, MOST_METRIC_BYTES = 100, 1000, 1 << 20
"""Upper bounds of the records in a reply, of its metrics, and of the bytes of their names and values."""


def lower_median(values: Floats) -> float:
    """Median of the numbers among `values`, the smaller of two middle ones; NaN if there are none."""
    known = np.sort(values[~np.isnan(values)])
    return float(known[(known.size - 1) // 2]) if known.size else float("nan")


def winsorised(values: Floats, multiple: float, group: Floats | None = None) -> Floats:
    """Winsorise: a value above `multiple` times the lower median of its `group` becomes that bound (Dixon, 1960).

    A minority of false values hardly changes the median. A bound of 0 is not applied: if most values are 0, the median
    carries no information.

    Parameters
    ----------
    values : float64 (n,), at least 0; NaN is unknown, and stays NaN
    multiple : multiple of the median; 0 changes no value
    group : float64 (m,), the values whose median is taken; None: `values`
    """
    bound = multiple * lower_median(values if group is None else group)
    return np.minimum(values, bound) if bound > 0.0 else values


def one_line(text: object) -> str:
    """The text on one line, cut after `LONGEST` characters; characters that cannot be printed become spaces."""
    start = str(text)[: 4 * LONGEST]
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def refuse_endless(metrics: Mapping[str, object]) -> None:
    """Raise WireError if the metrics of a reply are too many, or their names and values too long."""
    if len(metrics) > MOST_METRICS:
        raise WireError(f"a reply may have at most {MOST_METRICS} metrics, and {len(metrics)} came")
    length = sum(len(name) + _bytes(value) for name, value in metrics.items())
    if length > MOST_METRIC_BYTES:
        raise WireError(f"the metrics of a reply may have at most {MOST_METRIC_BYTES} bytes, and {length} came")


def _bytes(value: object) -> int:
    """Bytes of a scalar or of a list of scalars; a character counts as one."""
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return len(value) if isinstance(value, str | bytes) else 8
