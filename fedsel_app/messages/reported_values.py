"""Reported values: what a client says of itself is bounded, a number by a median, a text by its length."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LONGEST = 300
"""Most characters of a client's text that are kept."""


def lower_median(values: Floats) -> float:
    """Median of the numbers among `values`; of the two middle ones the less. NaN where there is none."""
    known = np.sort(values[~np.isnan(values)])
    return float(known[(known.size - 1) // 2]) if known.size else float("nan")


def winsorised(values: Floats, multiple: float, group: Floats | None = None) -> Floats:
    """Winsorise: a value above `multiple` times the lower median of its `group` becomes that bound (Dixon, 1960).

    A minority of liars hardly moves the median. A bound of 0 is none: where most have nothing, nothing can be told
    from it.

    Parameters
    ----------
    values : float64 (n,), at least 0; NaN is unknown, and stays so
    multiple : 0 leaves all values as they are
    group : float64 (m,), the values among which the median is taken; None: `values` themselves
    """
    bound = multiple * lower_median(values if group is None else group)
    return np.minimum(values, bound) if bound > 0.0 else values


def one_line(text: object) -> str:
    """The text on one line, cut after `LONGEST` characters; what cannot be printed is shown as a space."""
    start = str(text)[: 4 * LONGEST]
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
