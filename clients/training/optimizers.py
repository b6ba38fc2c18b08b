"""Local optimizers: steps in place on flat vectors; momentum and moments start at zero every round.

SGD with momentum is computed as in `torch.optim.SGD`. Adam: D. P. Kingma, J. Ba, "Adam: A Method for Stochastic
Optimization", ICLR 2015, arXiv 1412.6980 (Algorithm 1), as `torch.optim.Adam`; AdamW: I. Loshchilov, F. Hutter,
"Decoupled Weight Decay Regularization", ICLR 2019, arXiv 1711.05101 (Algorithm 2), as `torch.optim.AdamW`. Torch's
classes would import torch's compiler in every client process, which takes seconds.
"""

import math

import torch
from torch import Tensor

from fedsel_app.config import TrainingConfig

BETA2 = 0.999
EPSILON = 1e-8


class SGD:
    """SGD with momentum: v <- momentum v + g, w <- w - lr v. The gradient, float32 (N,) like w, does not change."""

    def __init__(self, weights: Tensor, momentum: float) -> None:
        self._momentum = momentum
        self._velocity = torch.zeros_like(weights) if momentum else None

    def step(self, weights: Tensor, gradient: Tensor, lr: float) -> None:
        """Take one step, in place on `weights`."""
        step = gradient if self._velocity is None else self._velocity.mul_(self._momentum).add_(gradient)
        weights.add_(step, alpha=-lr)


class Adam:
    """Adam, and AdamW with `decay`. The gradient does not change.

    m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr m^ / (sqrt(v^) + eps); ^ corrects for the zero start.

    Parameters
    ----------
    weights
        Float32 (N,), the weights that it will update.
    beta1
        Decay of the mean gradient; that of its square is 0.999.
    decay
        Decoupled weight decay of AdamW: before each step w <- (1 - lr decay) w; 0 for Adam.
    """

    def __init__(self, weights: Tensor, beta1: float, decay: float) -> None:
        self._beta1 = beta1
        self._decay = decay
        self._steps = 0
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self._root = torch.empty_like(weights)

    def step(self, weights: Tensor, gradient: Tensor, lr: float) -> None:
        """Take one step, in place on `weights`."""
        self._steps += 1
        if self._decay:
            weights.mul_(1.0 - lr * self._decay)
        self._mean.lerp_(gradient, 1.0 - self._beta1)
        self._square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
        torch.sqrt(self._square, out=self._root).div_(math.sqrt(1.0 - BETA2**self._steps)).add_(EPSILON)
        weights.addcdiv_(self._mean, self._root, value=-lr / (1.0 - self._beta1**self._steps))


def make_optimizer(config: TrainingConfig, weights: Tensor) -> SGD | Adam:
    """The optimizer of one round's local training."""
    if config.optimizer == "sgd":
        return SGD(weights, config.momentum)
    return Adam(weights, config.momentum, config.weight_decay if config.optimizer == "adamw" else 0.0)
