"""Staleness: the weight of updates that began at an older model, and FedAsync's mixing of models.

FedAsync is C. Xie, S. Koyejo, I. Gupta, "Asynchronous Federated Optimization", OPT 2020, arXiv 1903.03934. FedBuff is
J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, D. Huba, "Federated Learning with Buffered
Asynchronous Aggregation", AISTATS 2022, arXiv 2106.06639.

FedAsync, Algorithm 1: x_t = (1 - alpha_t) x_{t-1} + alpha_t x_new, with alpha_t = alpha s(t - tau), where the client
trained x_new from x_tau. Here alpha is `server-lr`. An update
from the newest model x_{t-1} has t - tau = 1 there; APPFL and FLGo count 0 for it.

FedBuff, Algorithm 1: w^{t+1} = w^t + eta_g / B sum over the buffer of s(tau_i) Delta_i, with tau_i = t minus the
version from which Delta_i began, and s(tau) = 1 / sqrt(1 + tau). Here eta_g is `server-lr`, and 1 / B is the weight by
`weighting`; B is called K in the paper.

Deviations
----------
- Of the functions s of FedAsync's Sec. 5, only the constant and the power -1/2 are here.
- The other weights, of examples or scores, are multiplied by s, and are not normalised again, as in FedBuff. The
  authors' code (github.com/facebookresearch/FLSim) differs from their paper: it divides s by its value at the staleness
  1, and sums the updates without 1 / B.
- If all clients under way have failed or arrived, the server steps with fewer than B updates, and divides by their
  number.
- A client whose update waits in the buffer trains again only after the step, and free places are filled at the step.
  So between two steps up to B - 1 places are empty, where others fill each at once. Only so is a buffer of the whole
  cohort a synchronous server.
- The full text of FedBuff's paper was not at hand: Algorithm 1 is as public code and its discussions quote it.
- Both papers let the server clip or regularise; other settings of fedsel do that.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import WaitingConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.wire.codec import Update
from strategies.roster import Floats, Ints


def staleness_weights(staleness: Ints, config: WaitingConfig) -> Floats:
    """Weights s of updates, float64 (r,), by the steps that the server made while their clients trained.

    s(lag) is 1, or 1 / sqrt(1 + lag). FedAsync counts the step that takes the update, too: its lag is t - tau. FedBuff
    does not.
    """
    if config.staleness != "polynomial":
        return np.ones(staleness.shape)
    lags = staleness + (config.waiting == "asynchronous")
    return np.asarray((1.0 + lags.astype(np.float64)) ** -0.5)


def stale_step(
    aggregate: Floats,
    weights: Floats,
    staleness: Ints,
    starts: Sequence[NDArray[np.float32]],
    parameters: NDArray[np.float32],
) -> Floats:
    """FedAsync's step before alpha, float64 (N,): the weighted sum of x_tau + Delta - x_{t-1}.

    `aggregate` is that of the updates Delta, `starts` are the models x_tau, and `parameters` is x_{t-1}.
    """
    late = [
        (weight, Update(start.size, None, start.astype(np.float64) - parameters))
        for weight, steps, start in zip(weights.tolist(), staleness.tolist(), starts, strict=True)
        if steps
    ]
    if not late:
        return aggregate
    return aggregate + weighted_sum([change for _, change in late], [weight for weight, _ in late])
