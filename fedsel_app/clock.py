"""What a round did, as the clock sees it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """What the clock needs of a round.

    Attributes
    ----------
    uplink_bits_per_s, step_s : float64 (r,), of the clients that trained
    steps : int64 (r,), local steps they took
    wire_bytes, paper_bytes : int64 (r,), what each uploaded: as measured, and as 4 bytes a kept value
    probe_step_s : float64 (n,), seconds a step of the clients that were probed
    probe_steps : the probe's cost in local steps
    """

    uplink_bits_per_s: Floats
    step_s: Floats
    steps: Ints
    wire_bytes: Ints
    paper_bytes: Ints
    probe_step_s: Floats
    probe_steps: float
