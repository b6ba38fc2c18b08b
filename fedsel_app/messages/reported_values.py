"""Reported values: bounds for what a client reports: a multiple of the median for numbers, and lengths for the rest."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LONGEST = 300
"""Largest number of characters that are kept of a client's text."""


def lower_median(values: Floats) -> float:
    """Median of the numbers among `values`, the smaller of two middle ones; NaN if there are none."""
    sorted_values = np.sort(values[~np.isnan(values)])
    return float(sorted_values[(sorted_values.size - 1) // 2]) if sorted_values.size else float("nan")


def winsorised(values: Floats, multiple: float, group: Floats | None = None) -> Floats:
    """Winsorise: a magnitude above `multiple` times the lower median of those of its `group` becomes that bound.

    A minority of false values hardly changes the median. A bound of 0 is not applied: if most values are 0, the median
    carries no information. Source: Dixon, 1960.

    Parameters
    ----------
    values : float64 (n,); NaN is unknown, and stays NaN
    multiple : multiple of the median; 0 changes no value
    group : float64 (m,), the values whose median is taken; None: `values`
    """
    bound = multiple * lower_median(np.abs(values if group is None else group))
    return np.clip(values, -bound, bound) if bound > 0.0 else values


def one_line(text: object) -> str:
    """The text on one line, cut after `LONGEST` characters; characters that cannot be printed become spaces."""
    start = str(text)[: 4 * LONGEST]
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
