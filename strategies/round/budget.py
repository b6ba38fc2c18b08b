"""Communication budget: the round's average kept fraction, its allocation to the cohort, and the seconds of uploads.

The budget is that of HeteRo-Select (arXiv:2508.06692), Eqs. 7 and 8. Settings choose between the text of the paper
(the defaults) and the authors' code (the `paper` preset). The two differ in where the cosine starts, in the cap, and in
whether the cap applies during the warm-up. Other methods choose the fraction that a client can send by a deadline.
"""

import math

import numpy as np

from fedsel_app.config import BudgetConfig, CompressionConfig
from fedsel_app.wire.rounded_values import bits_an_entry
from strategies.method import MethodContext
from strategies.roster import Floats, Ints, Roster, RoundInfo, Selection


def round_fraction(round_info: RoundInfo, context: MethodContext) -> float:
    """Average kept fraction theta_t of a round (Eq. 7); 1 during the warm-up."""
    config = context.budget
    if round_info.scheduled <= config.kept_warmup_rounds:
        return 1.0
    first = config.kept_warmup_rounds + 1 if context.compression.as_coded else 1
    progress = (round_info.scheduled - first) / max(round_info.total - first, 1)
    wave = 1.0 + config.kept_cosine * math.cos(math.pi * progress)
    return min(max(config.kept_fraction * wave, config.kept_floor), 1.0)


def link_caps(
    uplink_bits_per_s: Floats, mean_uplink_bits_per_s: float, mean_compute_s: float, size: int, config: BudgetConfig
) -> Floats:
    """Each client's ceiling theta_cap = B_k T_budget / (32 N) (below Eq. 8); inf if its link is unknown.

    With `link_cap` = transfer, T_budget = 32 N / mean bandwidth, so the cap is B_k / mean bandwidth. With round,
    T_budget = theta_avg 32 N / mean bandwidth + `mean_compute_s`, where the latter is an average client's local
    training (the authors' code).
    """
    if config.link_cap == "none":
        return np.full(uplink_bits_per_s.shape, np.inf)
    dense_s = 32.0 * size / mean_uplink_bits_per_s
    budget_s = dense_s if config.link_cap == "transfer" else config.kept_fraction * dense_s + mean_compute_s
    caps = uplink_bits_per_s * budget_s / (32.0 * size)
    return np.where(np.isnan(caps), np.inf, caps)


def client_fractions(
    scores: Floats, fraction: float, caps: Floats, round_info: RoundInfo, context: MethodContext
) -> Floats:
    """Each selected client's kept fraction theta_k (Eq. 8): min(S_k / mean(S) theta_t, cap_k) in [theta_min, 1].

    `scores` and `caps` are float64 (m,). With no positive score all clients get the round's fraction.
    """
    config = context.budget
    if round_info.scheduled <= config.kept_warmup_rounds and config.kept_warmup_full:
        return np.ones(scores.shape)
    mean = scores.mean() if scores.size else 0.0
    share = scores / mean if config.allocation == "score" and mean > 0 else np.ones(scores.shape)
    return np.clip(np.minimum(share * fraction, caps), context.compression.kept_min, 1.0)


def cohort_fractions(
    selection: Selection,
    roster: Roster,
    steps: Ints,
    link_means: tuple[float, float],
    size: int,
    round_info: RoundInfo,
    context: MethodContext,
) -> tuple[float, Floats]:
    """The round's average kept fraction, and each selected client's, float64 (m,).

    `steps` are their local steps, int64 (m,). `link_means` are the mean uplink (bits/s) and the mean seconds of a local
    step; `size` is N.
    """
    theta = round_fraction(round_info, context)
    mean_uplink, mean_step_s = link_means
    mean_compute_s = mean_step_s * float(steps.mean())
    caps = link_caps(roster.uplink_bits_per_s[selection.clients], mean_uplink, mean_compute_s, size, context.budget)
    return theta, client_fractions(selection.scores, theta, caps, round_info, context)


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
