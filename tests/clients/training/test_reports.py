"""The numbers that methods request, against torch's own losses and gradients, one mini-batch and example at a time."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from clients.training.reports import gradient_deviation, loss_moments
from fedsel_app.messages.scalars import Report
from fedsel_app.models.flat_model import FlatModel
from tests.support.training import CPU, minibatches, network


def uneven_batches():
    """Mini-batches of 10, 4 and 10 examples."""
    first, second, third = minibatches(3)
    return [first, (second[0][:4], second[1][:4]), third]


def test_the_loss_moments_are_over_the_examples():
    module, batches = network(), uneven_batches()
    with torch.no_grad():
        losses = [
            functional.cross_entropy(module(x[None]), y[None]).item() for b in batches for x, y in zip(*b, strict=True)
        ]
    assert len(losses) == 24
    found = loss_moments(FlatModel(module, CPU), batches)
    expected = {Report.INITIAL_LOSS: np.mean(losses), Report.RMS_LOSS: np.sqrt(np.mean(np.square(losses)))}
    assert found == pytest.approx(expected, rel=1e-6)
    assert found[Report.RMS_LOSS] > 1.01 * found[Report.INITIAL_LOSS]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_gradient_deviation_is_over_the_mini_batches(count):
    module, batches = network(), uneven_batches()[:count]
    gradients = []
    for x, y in batches:
        module.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        gradients.append(np.concatenate([parameter.grad.flatten().double() for parameter in module.parameters()]))
    mean = sum(gradients) / count
    expected = np.sqrt(sum(np.square(gradient - mean).sum() for gradient in gradients) / count)
    assert gradient_deviation(FlatModel(network(), CPU), batches) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert count == 1 or expected > 0.1
