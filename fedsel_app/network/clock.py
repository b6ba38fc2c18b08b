"""Clock of a round: the work from which links compute its duration."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_BYTES = 16_384
"""Least upload that shows the rate of a link; a smaller one shows its delay."""
FORWARD_STEPS = 1 / 3
"""Cost of a forward pass in local steps: the backward pass costs about twice as much."""


@dataclass(frozen=True)
class RoundWork:
    """Work of a round: what its clients computed and sent, for the clock.

    Attributes
    ----------
    uplink_bits_per_s, step_s : float64 (r,), link speed and seconds a local step of each client that trained
    work_steps : float64 (r,), computing of each, in local steps
    uplink_bytes, uplink_value_bytes : int64 (r,), upload of each: as measured, and as 4 bytes a kept value
    probe_s : float64 (c,), seconds of each probed client
    waited_s : least duration of the training, from waiting for clients that did not reply
    """

    uplink_bits_per_s: Floats
    step_s: Floats
    work_steps: Floats
    uplink_bytes: Ints
    uplink_value_bytes: Ints
    probe_s: Floats
    waited_s: float = 0.0
