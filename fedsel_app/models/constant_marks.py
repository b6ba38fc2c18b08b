"""Marks of constants: a few numbers of each tensor that is never sent, by which two machines compare their tensors.

A hash would tell apart processors whose sine or QR decomposition differs in the last bit. Marks do not.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.seeds import Purpose, stream

MARKS = 3
"""Numbers of each tensor: its norm and two random projections."""
MARKED_ENTRIES = 1 << 16
"""Entries of a tensor that are projected at a time."""
SAME = 1e-3
"""Largest difference of two marks of the same tensor, relative to its norm."""

Marks = NDArray[np.float64]


def marks_of(values: NDArray[np.generic]) -> Marks:
    """Marks of the entries (n,) of a tensor, float64 (3,). Infinities and NaN count as numbers."""
    directions = stream(0, Purpose.MARKS).standard_normal((MARKS - 1, min(values.size, MARKED_ENTRIES)))
    marks = np.zeros(MARKS)
    for start in range(0, values.size, MARKED_ENTRIES):
        part = values[start : start + MARKED_ENTRIES].astype(np.float64)
        part = np.nan_to_num(part, nan=3.0, posinf=5.0, neginf=-7.0)
        marks += [part @ part, *(directions[:, : part.size] @ part)]
    marks[0] = np.sqrt(marks[0])
    return marks


def differing(names: Sequence[str], marks: Marks, others: Marks) -> list[str]:
    """Names of the tensors whose `marks`, (3 n,), differ from the `others`; all if there are other numbers of them."""
    if others.shape != marks.shape:
        return list(names)
    ours, theirs = marks.reshape(-1, MARKS), others.reshape(-1, MARKS)
    same = np.all(np.abs(theirs - ours) <= SAME * ours[:, :1], axis=1)
    return [name for name, equal in zip(names, same, strict=True) if not equal]
