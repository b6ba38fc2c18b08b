"""Local training: steps on flat vectors, with FedProx's proximal term and the constant terms of other solvers.

T. Li, A. K. Sahu, M. Zaheer, M. Sanjabi, A. Talwalkar, V. Smith: "Federated Optimization in Heterogeneous Networks",
MLSys 2020, arXiv 1812.06127 (Eq. 2, the proximal objective); mu = 0 gives plain training, as with torch's own
optimizers.
"""

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients.training.optimizers import make_optimizer
from fedsel_app.config import TrainingConfig
from fedsel_app.data.inputs import Inputs
from fedsel_app.models.flat_model import FlatModel


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

    and then w moves along g by the rule in `clients.training.optimizers`. mu is `config.proximal`, and 0 for layers
    that stay with the client; adamw decays w separately from g.

    Parameters
    ----------
    model
        It has the weights w_0 at entry and the trained weights at return.
    batches
        Pairs of inputs and labels, on the model's device.
    config
        Training uses its proximal coefficient, weight decay, clip norm, momentum and optimizer.
    lr
        Learning rate of the round.
    correction
        A constant term of the gradient, float32 (N,), on the model's device; None: no term.

    Returns
    -------
    (loss, steps)
        Mean over the steps of the mini-batch loss before each step, and the number of steps.

    Raises
    ------
    DivergenceError
        If a loss or a weight is not finite.
    ValueError
        If there is no mini-batch.
    """
    weights, gradient = model.parameters, model.gradient
    optimizer = make_optimizer(config, weights)
    penalty = 0.0 if config.optimizer == "adamw" else config.weight_decay
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
