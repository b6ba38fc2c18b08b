"""Channels-last order changes the positions of numbers, and their values only by the rounding of other kernels."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsel_app.models.building import channels_last

LAYERS = {
    "pooled": lambda: [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(36, 5)],
    "not pooled": lambda: [nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)],
    "flattened twice": lambda: [nn.Conv2d(3, 4, 3), nn.Flatten(2), nn.Flatten(), nn.Linear(144, 5)],
    "features": lambda: [nn.Flatten(), nn.Linear(192, 5)],
}


def gradients(model, x, y):
    torch.manual_seed(1)
    return torch.autograd.grad(functional.cross_entropy(model(x), y), list(model.parameters()))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("image_needs_gradient", [False, True])
def test_gradients_are_those_of_the_plain_model(name, image_needs_gradient):
    torch.manual_seed(0)
    plain = nn.Sequential(*LAYERS[name]())
    x, y = torch.randn(6, 3, 8, 8, requires_grad=image_needs_gradient), torch.arange(6) % 5
    if any(isinstance(layer, nn.Dropout) for layer in plain):
        plain[3].eval()  # the mask is drawn in the order of the memory
    for ours, theirs in zip(gradients(channels_last(copy.deepcopy(plain)), x, y), gradients(plain, x, y), strict=True):
        torch.testing.assert_close(ours, theirs)
