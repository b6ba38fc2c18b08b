"""Models of the kinds that users bring: each has something besides plain weights. They take the digits (1x8x8), unless
their name or the data say otherwise.
"""

import copy
import math
import os
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tests.cases.data import VOCABULARY

# BatchNorm and last mini-batches of one example ---------------------------------------------------------------


def batch_norm(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes))


class Broken(nn.Linear):
    """Raises in every training step, but not when it is tried on two samples."""

    def __init__(self, shape, classes):
        super().__init__(64, classes)

    def forward(self, x):
        if self.training and len(x) > 2:
            raise RuntimeError("the GPU is gone")
        return super().forward(x.flatten(1))


class Slow(nn.Linear):
    """Takes a minute for each message, once there is a file `slow` in the FLWR_HOME of its process."""

    last_s = 0.0

    def __init__(self, shape, classes):
        super().__init__(64, classes)

    def forward(self, x):
        if time.monotonic() - Slow.last_s > 2.0 and Path(os.environ.get("FLWR_HOME", ""), "slow").exists():
            time.sleep(60.0)
        Slow.last_s = time.monotonic()
        return super().forward(x.flatten(1))


# Statistics ---------------------------------------------------------------------------------------------------


def hidden_norm(norm, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), norm, nn.ReLU(), nn.Linear(16, classes))


def with_means(shape, classes):
    """Statistics from pretraining: means that are not zero."""
    model = hidden_norm(nn.BatchNorm1d(16), classes)
    with torch.no_grad():
        model[2].running_mean.copy_(torch.linspace(0.05, 0.5, 16))
        model[2].running_var.fill_(0.8)
    return model


def cumulative(shape, classes):
    """BatchNorm whose statistics are plain averages over all mini-batches."""
    return hidden_norm(nn.BatchNorm1d(16, momentum=None), classes)


# Frozen statistics --------------------------------------------------------------------------------------------


def in_eval_mode(shape, classes):
    model = hidden_norm(nn.BatchNorm1d(16), classes)
    model[2].eval()
    return model


def frozen_layer(shape, classes):
    model = in_eval_mode(shape, classes)
    model[2].requires_grad_(False)
    return model


# Constants ----------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """A small transformer over the 8 rows of a digit, with the usual buffers."""

    def __init__(self, shape, classes, *, mask=False, positions=False):
        super().__init__()
        d = 16
        self.up = nn.Linear(8, d)
        self.layer = nn.TransformerEncoderLayer(d, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(d, classes)
        self.has_mask, self.has_positions = mask, positions
        if mask:
            self.register_buffer("mask", torch.triu(torch.full((8, 8), float("-inf")), diagonal=1))
        if positions:
            table = torch.zeros(8, d)
            place = torch.arange(8.0)[:, None]
            rate = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
            table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
            self.register_buffer("positions", table)

    def forward(self, x):
        h = self.up(x.reshape(-1, 8, 8))
        if self.has_positions:
            h = h + self.positions
        return self.out(self.layer(h, src_mask=self.mask if self.has_mask else None)[:, -1])


def masked(shape, classes):
    return Attention(shape, classes, mask=True)


def masked_positional(shape, classes):
    return Attention(shape, classes, mask=True, positions=True)


class Turned(nn.Module):
    """A complex table of rotations, and a table of whole numbers."""

    def __init__(self, shape, classes):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(32), torch.linspace(0.0, 1.0, 32)), persistent=False)
        self.register_buffer("order", torch.arange(64).flip(0))
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        pairs = torch.view_as_complex(x.flatten(1)[:, self.order].reshape(-1, 32, 2).contiguous())
        return self.out(torch.view_as_real(pairs * self.turns).flatten(1))


def frozen_by_numpy(shape, classes):
    """Frozen random features from NumPy's global generator."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))
    with torch.no_grad():
        model[1].weight.copy_(torch.from_numpy(np.random.randn(32, 64) / 8))  # noqa: NPY002
    model[1].requires_grad_(False)
    return model


def frozen_by_chance(shape, classes):
    """Frozen random features that differ in every process."""
    model = frozen_by_numpy(shape, classes)
    with torch.no_grad():
        model[1].weight.copy_(torch.from_numpy(np.random.default_rng().normal(size=(32, 64)) / 8))
    return model


# Buffers that training changes --------------------------------------------------------------------------------


def spectral(shape, classes):
    return nn.Sequential(
        nn.Flatten(), parametrizations.spectral_norm(nn.Linear(64, 16)), nn.ReLU(), nn.Linear(16, classes)
    )


class Averaged(nn.Module):
    """A moving average of the inputs, replaced by a new tensor in each step, and a number of steps."""

    def __init__(self, shape, classes):
        super().__init__()
        self.register_buffer("average", torch.zeros(64))
        self.register_buffer("steps", torch.tensor(0))
        self.out = nn.Linear(64, classes)

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * x.detach().mean(0)
            self.steps += 1
        return self.out(x - self.average)


def small(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))


class Shadow(nn.Module):
    """A moving average of the weights in frozen parameters, which eval mode uses."""

    def __init__(self, shape, classes):
        super().__init__()
        self.net = small(classes)
        self.shadow = copy.deepcopy(self.net).requires_grad_(False)

    def follow(self):
        with torch.no_grad():
            for average, weight in zip(self.shadow.parameters(), self.net.parameters(), strict=True):
                average.lerp_(weight, 0.5)

    def forward(self, x):
        if self.training:
            self.follow()
        return (self.net if self.training else self.shadow)(x)


# Inputs and outputs -------------------------------------------------------------------------------------------


class Halved(nn.Module):
    """Halves its input, in place or not."""

    def __init__(self, shape, classes, *, inplace=False):
        super().__init__()
        self.inplace, self.out = inplace, nn.Linear(64, classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.out(x.mul_(0.5) if self.inplace else x * 0.5)


def inplace_halved(shape, classes):
    return Halved(shape, classes, inplace=True)


class Answer:
    """Outputs in the form of Hugging Face's models."""

    def __init__(self, logits):
        self.loss, self.logits, self.hidden_states = None, logits, None


class Bag(nn.Module):
    """Mean of embeddings."""

    def __init__(self, shape, classes, sparse=False):
        super().__init__()
        self.words, self.out = nn.Embedding(VOCABULARY, 8, sparse=sparse), nn.Linear(8, classes)

    def forward(self, x):
        return self.out(self.words(x).mean(1))


def sparse_bag(shape, classes):
    return Bag(shape, classes, sparse=True)


class TokenClassifier(nn.Module):
    """The interface of Hugging Face's models for classification: keywords, a mask, an object with logits."""

    def __init__(self, shape, classes):
        super().__init__()
        self.words, self.out = nn.Embedding(VOCABULARY, 8), nn.Linear(8, classes)
        self.register_buffer("position_ids", torch.arange(64).expand((1, -1)), persistent=False)

    def forward(self, input_ids=None, attention_mask=None, labels=None, return_dict=None):
        there = attention_mask[..., None].float()
        h = (self.words(input_ids) * there).sum(1) / there.sum(1)
        return Answer(self.out(h))


class WordsAndNumbers(nn.Module):
    """Two inputs of different types; a dict with logits comes back."""

    def __init__(self, shape, classes):
        super().__init__()
        self.words, self.out = nn.Embedding(VOCABULARY, 8), nn.Linear(10, classes)

    def forward(self, words, numbers):
        return {"logits": self.out(torch.cat([self.words(words).mean(1), numbers], 1)), "unused": words}


class Tied(nn.Module):
    """The output layer has the weights of the input layer."""

    def __init__(self, shape, classes):
        super().__init__()
        self.up, self.turn, self.out = nn.Linear(64, classes), nn.Linear(classes, 64), nn.Linear(64, classes)
        self.out.weight = self.up.weight

    def forward(self, x):
        return self.out(self.turn(self.up(x.flatten(1)).tanh()))


def half(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes)).half()


def scripted(shape, classes):
    with warnings.catch_warnings(action="ignore"):  # newer releases of torch deprecate it
        return torch.jit.script(small(classes))


def sparse_buffer(shape, classes):
    model = small(classes)
    model.register_buffer("edges", torch.eye(4).to_sparse())
    return model


def endless(shape, classes):
    model = small(classes)
    with torch.no_grad():
        model[1].weight[0, 0] = math.nan
    return model


def complex_weights(shape, classes):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
    model.register_parameter("phases", nn.Parameter(torch.zeros(3, dtype=torch.complex64)))
    return model
