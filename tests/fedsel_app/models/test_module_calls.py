"""What a trial of a module refuses; tests/cases has what it finds, in whole runs."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fedsel_app.config import ConfigError
from fedsel_app.models.module_calls import call, forward_flops, tried

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


def test_a_linear_layer_and_a_convolution_by_hand():
    # 3 filters of 2 x 3 x 3 weights at 4 x 4 places, then 48 x 5 weights: two operations each.
    module = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 5))
    module.train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    for examples in (1, 3):
        assert forward_flops(module, torch.zeros(examples, 2, 4, 4)) == 2 * (3 * 18 * 16 + 48 * 5)
    assert module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert not any(layer._forward_hooks for layer in module.modules())
