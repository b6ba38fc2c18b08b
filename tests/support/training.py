"""Training by hand: a little network and its minibatches."""

import torch
from torch import nn

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
