"""Local training: steps on flat vectors, their optimizers, and the numbers that methods request in addition (`Report`).

The proximal term is FedProx's: T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: "Federated
Optimization in Heterogeneous Networks", MLSys 2020, arXiv 1812.06127, Eq. 2; mu = 0 gives plain training.

SGD with momentum is computed as in `torch.optim.SGD`. Adam: D. P. Kingma, J. Ba, "Adam: A Method for Stochastic
Optimization", ICLR 2015, arXiv 1412.6980 (Algorithm 1), as `torch.optim.Adam`; AdamW: I. Loshchilov, F. Hutter,
"Decoupled Weight Decay Regularization", ICLR 2019, arXiv 1711.05101 (Algorithm 2), as `torch.optim.AdamW`. Momentum
and moments start at zero every round. Torch's classes would import torch's compiler in every client process, which
takes seconds.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsel_app.config import TrainingConfig
from fedsel_app.data.inputs import Inputs
from fedsel_app.messages.scalars import Report
from fedsel_app.models.flat_model import FlatModel

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
    weights : float32 (N,), the weights that it will update
    beta1 : decay of the mean gradient; that of its square is 0.999
    decay : decoupled weight decay of AdamW: before each step w <- (1 - lr decay) w; 0 for Adam
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


class DivergenceError(FloatingPointError):
    """Local training produced a number that is not finite. The message names the learning rate."""


def train(
    model: FlatModel,
    batches: Iterable[tuple[Inputs, Tensor]],
    config: TrainingConfig,
    lr: float,
    correction: Tensor | None = None,
) -> tuple[float, int]:
    """Take one step for each mini-batch. BatchNorm statistics change as in train mode.

    With w_0 the weights at entry, one step is

        g = grad + mu (w - w_0) + correction + weight_decay w,   g <- g min(1, clip_norm / ||g||),

    and then w moves along g by the rule of the optimizer. mu is `config.proximal`, and 0 for layers
    that stay with the client; adamw decays w separately from g.

    Returns the mean over the steps of the mini-batch loss before each step, and the number of steps. Raises
    DivergenceError if a loss or a weight is not finite, and ValueError if there is no mini-batch.

    Parameters
    ----------
    model : has the weights w_0 at entry and the trained weights at return
    batches : pairs of inputs and labels, on the model's device
    config : its proximal coefficient, weight decay, clip norm, momentum and optimizer are used
    lr : learning rate of the round
    correction : a constant term of the gradient, float32 (N,), on the model's device; None: no term
    """
    weights, gradient = model.parameters, model.gradient
    decoupled = config.optimizer == "adamw"
    decay, penalty = (config.weight_decay, 0.0) if decoupled else (0.0, config.weight_decay)
    optimizer = SGD(weights, config.momentum) if config.optimizer == "sgd" else Adam(weights, config.momentum, decay)
    anchor = weights[: model.size].clone() if config.proximal else None
    drift = None if anchor is None else torch.empty_like(anchor)
    terms = config.momentum or config.proximal or config.clip_norm or penalty or correction is not None
    plain = config.optimizer == "sgd" and not terms
    steps = 0
    total = torch.zeros((), dtype=torch.float64, device=weights.device)
    model.state.train()
    for x, y in batches:
        steps += 1
        if plain:
            total += model.descend(x, y, lr)
            continue
        total += model.backward(x, y)
        with torch.no_grad():
            if anchor is not None:
                drift = torch.sub(weights[: model.size], anchor, out=drift)
                gradient[: model.size].add_(drift, alpha=config.proximal)
            if correction is not None:
                gradient.add_(correction)
            if penalty:
                gradient.add_(weights, alpha=penalty)
            if config.clip_norm:
                gradient.mul_(torch.clamp(config.clip_norm / (torch.linalg.vector_norm(gradient) + 1e-6), max=1.0))
            optimizer.step(weights, gradient, lr)
    if not steps:
        raise ValueError("There is no mini-batch to train on.")
    mean_loss = total.item() / steps
    # On a CPU NumPy takes a twentieth of torch's time.
    finite = np.isfinite(weights.numpy()).all() if weights.is_cpu else torch.isfinite(weights).all()
    if not math.isfinite(mean_loss) or not finite:
        raise DivergenceError(
            f"Local training diverged at learning rate {lr:g} (mean loss {mean_loss:g} over {steps} steps): "
            "lower 'lr', or bound the gradient with 'clip-norm'."
        )
    return mean_loss, steps


def finite_buffers(model: FlatModel) -> NDArray[np.float32]:
    """The model's buffers that travel, float32 (B,). Raises DivergenceError if they are not finite."""
    buffers = model.buffers_vector()
    if not np.isfinite(buffers).all():
        raise DivergenceError("The model's buffers (BatchNorm statistics) are no longer finite: lower 'lr'.")
    return buffers


BEFORE_TRAINING = frozenset({Report.INITIAL_LOSS, Report.RMS_LOSS})
AFTER_TRAINING = frozenset({Report.GRADIENT_DEVIATION})

Batches = Iterable[tuple[Inputs, Tensor]]


def loss_moments(model: FlatModel, batches: Batches) -> dict[Report, float]:
    """Initial loss and RMS loss of the model, in eval mode."""
    total, squares, examples = 0.0, 0.0, 0
    model.module.eval()
    with torch.no_grad():
        for x, y in batches:
            losses = model.losses(x, y).double()
            total += float(losses.sum())
            squares += float(losses.square().sum())
            examples += len(y)
    return {Report.INITIAL_LOSS: total / examples, Report.RMS_LOSS: math.sqrt(squares / examples)}


def gradient_deviation(model: FlatModel, batches: Batches) -> float:
    """Gradient deviation of the model in eval mode: sqrt((1/B) sum_b ||g_b - mean g||^2) over the B mini-batches,
    of the shared parameters.
    """
    mean = torch.zeros(model.size, dtype=torch.float64, device=model.parameters.device)
    squares = 0.0
    count = 0
    model.module.eval()
    for x, y in batches:
        model.backward(x, y)
        gradient = model.gradient[: model.size].double()
        mean += gradient
        squares += float(gradient.square().sum())
        count += 1
    mean /= count
    return math.sqrt(max(squares / count - float(mean.square().sum()), 0.0))
