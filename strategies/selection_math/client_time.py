"""Client times: seconds of training and upload, from the links, and the kept fractions that meet a deadline."""

import math

import numpy as np

from fedsel_app.config import CompressionConfig
from fedsel_app.wire.rounded_values import bits_an_entry
from strategies.roster import Floats, Ints, Roster


def update_bits(size: int, fraction: float, compression: CompressionConfig) -> float:
    """Bits of an update that keeps `fraction` in (0, 1] of `size` entries: the values, and the entropy of the indices.

    The Rice-coded gaps of `fedsel_app.wire.indices` need at most a few per cent more than this entropy. The indices of
    rand-k and common-k are known to the server and cost nothing. A quantised update counts as a dense one.
    """
    common = compression.traits.common
    value_bits = float(compression.ring_bits) if common else bits_an_entry(compression.value_bits)
    if fraction >= 1.0 or not compression.sparsifies:
        return value_bits * size
    places = -fraction * math.log2(fraction) - (1.0 - fraction) * math.log2(1.0 - fraction)
    return size * (value_bits * fraction + (0.0 if compression.traits.seeded else places))


def client_seconds(
    roster: Roster, ids: Ints, size: int, fraction: float, compression: CompressionConfig
) -> tuple[Floats, Floats]:
    """Seconds a_i of the local training of `ids`, and seconds M / b_i of their full upload, float64 (n,) each.

    The schedules need an M that is linear in the kept fraction. So each entry has the cost that it has at `fraction`.
    """
    full_bits = update_bits(size, fraction, compression) / fraction
    return roster.step_s[ids] * roster.local_steps[ids], full_bits / roster.uplink_bits_per_s[ids]


def fitting_fractions(deadline_s: float | Floats, compute_s: Floats, full_upload_s: Floats, least: float) -> Floats:
    """theta_i = clip((T - a_i) b_i / M, theta_min, 1): the fraction that client i can send by the deadline T, float64
    (n,).
    """
    return np.clip((deadline_s - compute_s) / full_upload_s, least, 1.0)
