"""Outputs and gradients of the HeteRo-Select models equal an independent transcription of their layers.

The transcriptions are functions of the model's parameters, in their order. A parameter count alone does not show a
ReLU, a pooling, a dropout or the position of an addition.
"""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsel_app.models.building import build

SEED = 3


class Reader:
    """The parameters of a model one after the other, and the batch statistics of its BatchNorm layers."""

    def __init__(self, model):
        self._parameters = iter(model.parameters())
        self._norms = iter([m for m in model.modules() if isinstance(m, nn.BatchNorm2d)])
        self.training = model.training

    def next(self):
        return next(self._parameters)

    def linear(self, x):
        return x @ self.next().T + self.next()

    def normed(self, x):
        """(x - mean) / sqrt(var + eps) * scale + shift, by hand: statistics of the batch, or the running ones."""
        norm = next(self._norms)
        mean, variance = norm.running_mean, norm.running_var
        if self.training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        scale, shift = self.next(), self.next()
        unit = (x - mean[:, None, None]) / torch.sqrt(variance[:, None, None] + 1e-5)
        return unit * scale[:, None, None] + shift[:, None, None]

    def convolution(self, x, *, stride=1, padding=1, bias=True):
        weight = self.next()
        return functional.conv2d(x, weight, self.next() if bias else None, stride=stride, padding=padding)


def alexnet(read, x):
    x = functional.max_pool2d(read.convolution(x, stride=2).relu(), 2)
    x = functional.max_pool2d(read.convolution(x).relu(), 2)
    x = read.convolution(x).relu()
    x = read.convolution(x).relu()
    x = functional.max_pool2d(read.convolution(x).relu(), 2)
    x = read.linear(x.reshape(len(x), -1)).relu()
    if read.training:
        kept = functional.dropout(torch.ones_like(x), 0.5)
        x = x * kept
    return read.linear(x)


def resnet9(read, x):
    def layer(x):
        return read.normed(read.convolution(x))

    def residual(x):
        inner = layer(layer(x).relu())
        return (inner + x).relu()

    x = layer(x).relu()
    x = functional.max_pool2d(layer(x).relu(), 2)
    x = residual(x)
    x = functional.max_pool2d(layer(x).relu(), 2)
    x = functional.max_pool2d(layer(x).relu(), 2)
    x = residual(x)
    return read.linear(x.amax((2, 3)))


def resnet18(read, x):
    def layer(x, stride=1, padding=1):
        return read.normed(read.convolution(x, stride=stride, padding=padding, bias=False))

    def block(x, stride):
        inner = layer(layer(x, stride).relu())
        return (inner + (x if stride == 1 else layer(x, stride, padding=0))).relu()

    x = layer(x).relu()
    for stage in range(4):
        x = block(x, 1 if stage == 0 else 2)
        x = block(x, 1)
    return read.linear(x.mean((2, 3)))


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(
    ("name", "transcription", "classes"),
    [("alexnet", alexnet, 10), ("resnet9", resnet9, 100), ("resnet18", resnet18, 200)],
)
def test_outputs_and_gradients_equal_the_transcriptions(name, transcription, classes, training):
    rng = np.random.default_rng(0)
    model = build(name, (3, 16, 16), classes, SEED).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.tensor(rng.normal(size=module.num_features)))
            module.running_var.copy_(torch.tensor(rng.uniform(0.5, 2.0, size=module.num_features)))
    model.train(training)
    x = torch.tensor(rng.normal(size=(2, 3, 16, 16)))
    y = torch.tensor(rng.integers(classes, size=2))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        expected = transcription(Reader(model), x)
        torch.manual_seed(SEED)
        outputs = model(x)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-6)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(functional.cross_entropy(outputs, y), parameters)
    wanted = torch.autograd.grad(functional.cross_entropy(expected, y), parameters)
    for gradient, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, want, rtol=0, atol=1e-6)


def test_resnet18_initialises_convolutions_as_torch_does():
    """U(-1/sqrt(fan-in), 1/sqrt(fan-in)) (`nn.Conv2d`), not torchvision's normal distribution by fan-out."""
    model = build("resnet18", (3, 32, 32), 10, SEED)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight.detach()
            bound = float(np.prod(weight.shape[1:])) ** -0.5
            assert weight.abs().max() <= bound
            assert abs(float(weight.std()) / (bound / 3**0.5) - 1.0) < 0.05
