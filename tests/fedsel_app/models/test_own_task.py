"""A task of a user is tried before the first round: each fault is one sentence that names the class."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsel_app.config import ConfigError
from fedsel_app.models.building import try_task
from fedsel_app.models.flat_model import FlatModel, evaluate
from fedsel_app.models.tasks import Regression, own_task
from tests.support.training import CPU


class Huber(Regression):
    """Huber loss."""

    def __init__(self, outputs):
        self.outputs = outputs

    def loss(self, outputs, y):
        return functional.huber_loss(outputs.flatten(), y)

    def losses(self, outputs, y):
        return functional.huber_loss(outputs.flatten(), y, reduction="none")


class Inherited(Huber):
    """Its `loss` is not the mean of its `losses`, as of a class that overrides only one of them."""

    def loss(self, outputs, y):
        return Regression().loss(outputs, y)


class Detached(Huber):
    def loss(self, outputs, y):
        return super().loss(outputs.detach(), y)


class Reduced(Huber):
    def losses(self, outputs, y):
        return self.loss(outputs, y)


class Averaged(Huber):
    def tally(self, outputs, y):
        return np.array([float(y.mean())])


class Listed(Huber):
    def scores(self, tally, loss, examples):
        return [0.5]


class Numbers(Huber):
    """Scores as NumPy and torch have them."""

    def scores(self, tally, loss, examples):
        return {"r2": np.float32(0.5), "hits": torch.tensor(3), "rows": np.int64(examples)}


class Wrong(Huber):
    def losses(self, outputs, y):
        return functional.huber_loss(outputs, y.no_such_thing)


class Nameless(Huber):
    score = "my score"


def tried(name):
    path = f"{__name__}:{name}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = FlatModel(nn.Linear(3, 1), CPU, own_task(path, 1))
    try_task(path, model, torch.ones(2, 3), torch.tensor([5.0, -2.0]))
    return model.task


def test_a_task_may_change_the_loss_of_another():
    assert tried("Huber").outputs == 1


def test_scores_may_be_numbers_of_numpy_and_torch():
    model = FlatModel(nn.Linear(3, 1), CPU, tried("Numbers"))
    scores = evaluate(model, [(torch.ones(2, 3), torch.ones(2))]).scores
    assert [(type(value), value) for value in scores.values()] == [(float, 0.5), (float, 3.0), (float, 2.0)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Inherited", r"must return from `loss` the mean of `losses`\. For two examples it is .*, not"),
        ("Detached", "must return from `loss` a scalar with a gradient for the outputs"),
        ("Reduced", r"must return from `losses` the loss of each example, \(2,\)"),
        ("Averaged", "must return from `tally` an array of sums, which is the sum of those of two parts"),
        ("Listed", r"must return from `scores` a dict of numbers by name\. Got \[0\.5\]"),
        ("Wrong", r"raised AttributeError: .*no_such_thing.*test_own_task\.py, line"),
        ("Nameless", "needs the name of its score"),
    ],
)
def test_a_task_that_cannot_be_used_is_refused_in_one_sentence(name, words):
    with pytest.raises(ConfigError, match=words) as error:
        tried(name)
    assert "\n" not in str(error.value)
    assert name in str(error.value)
