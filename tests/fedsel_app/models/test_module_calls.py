"""What a trial of a module refuses; tests/cases has what it finds, in whole runs."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fedsel_app.config import ConfigError
from fedsel_app.models.module_calls import call, tried

X = torch.tensor([[1.0, 2.0], [3.0, 5.0]])


class Frozen(nn.Linear):
    """A layer without trainable weights."""

    def forward(self, x):
        return super().forward(x).detach()


class Failing(nn.Linear):
    """A layer that fails in training."""

    def forward(self, x):
        if self.training:
            raise RuntimeError("two heads")
        return super().forward(x)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Failing, "on two examples in train mode it raises RuntimeError: two heads"),
        (Frozen, "its outputs have no gradient"),
    ],
)
def test_a_module_that_does_not_train_is_refused(kind, said):
    module = kind(2, 2)
    with pytest.raises(ConfigError, match=f"The model does not train: {said}"):
        tried(module, module.train, X)


@pytest.mark.parametrize("form", [dict, SimpleNamespace])
def test_logits_are_outputs(form):
    assert call(lambda x: form(logits=x, loss=None), X) is X
    assert call(lambda a, b: form(logits=a), {"a": X, "b": None}) is X
    with pytest.raises(ConfigError, match=f"with 'logits'. It returned a {form.__name__}"):
        call(lambda x: form(loss=x), X)
