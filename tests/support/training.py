"""Training by hand: a small network, its mini-batches, and torch's own optimizers."""

from functools import partial

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

CPU = torch.device("cpu")


def network():
    """Two linear layers with a tanh between them: 6 inputs, 3 classes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def minibatches(steps=12, scale=1.0):
    """Minibatches of 10 examples with 6 inputs, and labels of 3 classes."""
    generator = torch.Generator().manual_seed(5)
    return [
        (scale * torch.randn(10, 6, generator=generator), torch.randint(3, (10,), generator=generator))
        for _ in range(steps)
    ]


class TorchOptimizer:
    """Steps of torch's own optimizers, by its functions, because its classes import torch's compiler for a second."""

    def __init__(self, name, module, **options):
        self.parameters = list(module.parameters())
        self.velocities = [None] * len(self.parameters)
        zeros = partial(map, torch.zeros_like, self.parameters)
        self.moments = list(zeros()), list(zeros()), [], [torch.tensor(0.0) for _ in self.parameters]
        self.step = {"sgd": self.sgd, "adam": partial(self.adam, adam), "adamw": partial(self.adam, adamw)}[name]
        self.options = {"weight_decay": 0.0, "maximize": False} | options

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def sgd(self):
        with torch.no_grad():
            gradients = [parameter.grad for parameter in self.parameters]
            options = {"momentum": 0.0, "dampening": 0.0, "nesterov": False} | self.options
            sgd(self.parameters, gradients, self.velocities, foreach=False, **options)

    def adam(self, function):
        with torch.no_grad():
            gradients = [parameter.grad for parameter in self.parameters]
            options = {"amsgrad": False, "eps": 1e-8} | self.options
            function(self.parameters, gradients, *self.moments, foreach=False, **options)
