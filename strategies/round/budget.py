"""Communication budget: the round's average kept fraction, and its allocation to the cohort.

HeteRo-Select (arXiv:2508.06692), Eqs. 7 and 8. Settings choose between the text of the paper (the defaults) and the
authors' code (the `paper` preset). The two differ in where the cosine starts, in the cap, and in whether the cap
applies during the warm-up.
"""

import math

import numpy as np

from fedsel_app.config import BudgetConfig
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
