"""What a round did, as the clock sees it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_BYTES = 16_384
"""Of an upload that tells the rate of a link; less tells its delay."""
FORWARD_STEPS = 1 / 3
"""A forward pass in local steps: the backward pass costs about twice as much."""


@dataclass(frozen=True)
class RoundWork:
    """What the clock needs of a round.

    Attributes
    ----------
    uplink_bits_per_s, step_s : float64 (r,), of the clients that trained
    work_steps : float64 (r,), what they computed, in local steps
    uplink_bytes, uplink_value_bytes : int64 (r,), what each uploaded: as measured, and as 4 bytes a kept value
    probe_s : float64 (c,), seconds that each probed client took
    waited_s : the least that the training took, because somebody was waited for in vain
    """

    uplink_bits_per_s: Floats
    step_s: Floats
    work_steps: Floats
    uplink_bytes: Ints
    uplink_value_bytes: Ints
    probe_s: Floats
    waited_s: float = 0.0
