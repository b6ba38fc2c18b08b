"""What the server does with the aggregated update."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, setting
from strategies.roster import Floats


@dataclass(frozen=True)
class ServerConfig(Settings):
    """Aggregation and the server's step."""

    weighting: str = setting(
        "method",
        "weights of the updates: the method's own choice, by score, by examples, or equal",
        choices=("method", "score", "examples", "uniform"),
    )
    server_optimizer: str = setting(
        "momentum", "w += lr (momentum M + update), or w += lr update", choices=("momentum", "mean")
    )
    server_momentum: float = setting(0.5, "decay beta_s of the server's momentum", low=0.0, below=1.0)
    server_lr: float = setting(1.0, "server learning rate", above=0.0)
    calibration_clients: int = setting(0, "clients that recompute BatchNorm statistics (0: all selected)", low=0)
    calibration_batches: int = setting(20, "mini-batches each of them uses", low=1)


class ServerOptimizer:
    """w_t = w_{t-1} + lr M_t with M_t = beta_s M_{t-1} + update (Eq. 14); `mean` is beta_s = 0."""

    def __init__(self, size: int, config: ServerConfig) -> None:
        self._decay = config.server_momentum if config.server_optimizer == "momentum" else 0.0
        self._lr = config.server_lr
        self._momentum = np.zeros(size)

    def step(self, parameters: NDArray[np.float32], update: Floats) -> NDArray[np.float32]:
        """The next global model, float32 (N,), from the present one and the aggregated `update`, float64 (N,)."""
        self._momentum *= self._decay
        self._momentum += update
        return (parameters + self._lr * self._momentum).astype(np.float32)


def aggregation_weights(
    weighting: str, scores: Floats, examples: Floats, own: Floats | None, *, normalise: bool
) -> Floats:
    """Weights (r,) that sum to 1. Where every one of them would be 0 they are equal.

    `own` are the method's own weights, used by `method`; None there means by examples. Without `normalise`
    (unbiased methods) they are returned as they are.
    """
    if weighting == "method" and own is not None and not normalise:
        return own
    chosen = {"score": scores, "examples": examples, "uniform": np.ones(scores.shape)}
    weights = chosen.get(weighting, examples if own is None else own)
    total = weights.sum()
    return weights / total if total > 0 else np.full(scores.shape, 1.0 / max(scores.size, 1))
