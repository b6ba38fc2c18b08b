"""Server optimisers: momentum, FedAdagrad, FedYogi and FedAdam on the aggregated update.

Momentum is Eq. 14 of HeteRo-Select (the same as T.-M. H. Hsu, H. Qi, M. Brown, arXiv 1909.06335, with server-lr 1).
FedAdagrad, FedYogi and FedAdam are Algorithm 2 of S. J. Reddi, Z. Charles, M. Zaheer, Z. Garrett, K. Rush, J. Konecny,
S. Kumar, H. B. McMahan, "Adaptive Federated Optimization", ICLR 2021, arXiv 2003.00295: without bias correction, and
with V_0 = tau^2, the smallest value that the paper allows.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ServerOptimizerConfig
from fedsel_app.solvers import Weights
from strategies.checkpoint import Saved
from strategies.roster import Floats

SECOND_MOMENTS: Mapping[str, Callable[[Floats, Floats, float], Floats]] = {
    "fedadam": lambda second, square, beta2: beta2 * second + (1.0 - beta2) * square,
    "fedyogi": lambda second, square, beta2: second - (1.0 - beta2) * square * np.sign(second - square),
    "fedadagrad": lambda second, square, beta2: second + square,
}
"""Adaptive optimizer -> function from V, Delta^2, float64 (N,), and beta_2 to the next V."""


class ServerOptimizer(Saved):
    """Server optimiser: the next global model from the aggregated update Delta.

    momentum: M <- beta_s M + Delta, w <- w + lr M (Eq. 14); mean is beta_s = 0. The adaptive ones:
    M <- beta_1 M + (1 - beta_1) Delta, V by `SECOND_MOMENTS`, w <- w + lr M / (sqrt(V) + tau).
    """

    state_fields = ("_momentum", "_second")

    def __init__(self, size: int, config: ServerOptimizerConfig) -> None:
        self._config = config
        self._decay = 0.0 if config.traits.plain else config.server_momentum
        self._adaptive = config.traits.adaptive
        self._momentum = np.zeros(size)
        self._second = np.full(size if self._adaptive else 0, config.server_tau**2)

    def step(self, parameters: NDArray[np.float32], update: Floats) -> NDArray[np.float32]:
        """The next global model (N,) from the `parameters`, whose type it has, and the aggregated `update`, float64."""
        config = self._config
        if not self._adaptive:
            self._momentum *= self._decay
            self._momentum += update
            return (parameters + config.server_lr * self._momentum).astype(parameters.dtype)
        self._momentum = config.server_beta1 * self._momentum + (1.0 - config.server_beta1) * update
        moment = SECOND_MOMENTS[config.server_optimizer]
        self._second = moment(self._second, np.square(update), config.server_beta2)
        step = self._momentum / (np.sqrt(self._second) + config.server_tau)
        return (parameters + config.server_lr * step).astype(parameters.dtype)


def aggregation_weights(
    weighting: str, scores: Floats, examples: Floats, own: Floats | None, *, normalise: bool
) -> Weights:
    """Aggregation weights of r updates that sum to 1; if all would be 0, they are equal.

    `own` are the method's own weights for `weighting` = method; None there means by examples. Without `normalise`
    (unbiased methods) they are returned unchanged.
    """
    if weighting == "method" and own is not None and not normalise:
        return Weights(own, 1.0)
    chosen = {"score": scores, "examples": examples, "uniform": np.ones(scores.shape)}
    weights = chosen.get(weighting, examples if own is None else own)
    total = math.fsum(weights)
    return Weights(weights, total) if total > 0 else Weights(np.ones(scores.shape), float(max(scores.size, 1)))
