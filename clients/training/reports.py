"""Reports: numbers that some methods request from a client in addition to its update (`messages.Report`).

A report is a function of a model and of mini-batches. Effective steps are reported for the local solver (see
`fedsel_app.solvers`).
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from fedsel_app.data.inputs import Inputs
from fedsel_app.messages.scalars import Report
from fedsel_app.models.flat_model import FlatModel

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
