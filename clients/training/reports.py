"""Reports: numbers that some methods ask of a client beside its update, each a function of a model and mini-batches.

========================  =====================================================================================
initial-loss              mean loss of the received model over the client's training examples
rms-loss                  root of the mean squared loss of the received model over them (Oort's utility)
gradient-deviation        root of the mean squared distance of the mini-batch gradients from their mean, at the
                          trained model (DELTA's sigma)
effective-steps           local steps, each counted as far as momentum carries it (FedNova's ||a||_1; see `solvers`)
========================  =====================================================================================
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fedsel_app.models.flat_model import FlatModel

BEFORE_TRAINING = ("initial-loss", "rms-loss")
AFTER_TRAINING = ("gradient-deviation",)

Batches = Iterable[tuple[Tensor, Tensor]]


def loss_moments(model: FlatModel, batches: Batches) -> dict[str, float]:
    """`initial-loss` and `rms-loss` of the model as it is, in eval mode."""
    total, squares, examples = 0.0, 0.0, 0
    model.module.eval()
    with torch.no_grad():
        for x, y in batches:
            losses = model.losses(x, y).double()
            total += float(losses.sum())
            squares += float(losses.square().sum())
            examples += len(y)
    return {"initial-loss": total / examples, "rms-loss": math.sqrt(squares / examples)}


def gradient_deviation(model: FlatModel, batches: Batches) -> float:
    """sqrt((1/B) sum_b ||g_b - mean g||^2) over the B mini-batch gradients of the model as it is, in eval mode."""
    mean, squares, count = torch.zeros_like(model.parameters, dtype=torch.float64), 0.0, 0
    model.module.eval()
    for x, y in batches:
        model.backward(x, y)
        gradient = model.gradient.double()
        mean += gradient
        squares += float(gradient.square().sum())
        count += 1
    mean /= count
    return math.sqrt(max(squares / count - float(mean.square().sum()), 0.0))
