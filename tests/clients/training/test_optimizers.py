"""Adam and AdamW against torch's own. SGD is compared with torch's in test_steps.py."""

import pytest
import torch
from torch.nn import functional

from clients.training.steps import train
from fedsel_app.config import TrainingConfig
from fedsel_app.models.flat_model import FlatModel
from tests.support.training import CPU, TorchOptimizer, minibatches, network


def settings(**changed):
    plain = {"optimizer": "adam", "mu": 0.0, "momentum": 0.9, "clip_norm": 0.0, "weight_decay": 0.0}
    return TrainingConfig(**(plain | changed))


@pytest.mark.parametrize("beta1", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_steps_are_torchs_bit_for_bit(name, decay, beta1):
    module, model = network(), FlatModel(network(), CPU)
    optimizer = TorchOptimizer(name, module, lr=0.01, beta1=beta1, beta2=0.999, weight_decay=decay)
    for x, y in minibatches():
        optimizer.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    train(model, minibatches(), settings(optimizer=name, momentum=beta1, weight_decay=decay), 0.01)
    assert torch.equal(model.parameters, torch.cat([p.detach().flatten() for p in module.parameters()]))


def test_the_first_step_goes_as_far_as_the_learning_rate_along_each_sign():
    """m^ = g and v^ = g^2 after one step; a second round starts anew."""
    model = FlatModel(network(), CPU)
    for batch in minibatches(2):
        before = model.parameters.clone()
        train(model, [batch], settings(), 0.01)
        moved = (model.parameters - before) / -0.01
        clear = model.gradient.abs() > 1e-4
        torch.testing.assert_close(moved[clear], model.gradient[clear].sign(), rtol=1e-3, atol=1e-3)
