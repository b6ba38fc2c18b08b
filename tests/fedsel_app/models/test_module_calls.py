"""What a trial shows of a module, on two inputs, and what counts as its outputs."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fedsel_app.config import ConfigError
from fedsel_app.models.module_calls import ModuleTrial, call, tried

X = torch.tensor([[1.0, 2.0], [3.0, 5.0]])


class Module(nn.Module):
    """Calls `function(module, x)` before its linear layer. It has a buffer of NaN, two of zeros, and an absent one."""

    def __init__(self, function=lambda module, x: x):
        super().__init__()
        self.function, self.linear = function, nn.Linear(2, 2)
        self.register_buffer("unknown", torch.full((2, 2), torch.nan))
        self.register_buffer("kept", torch.zeros(2, 2))
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("absent", None)

    def forward(self, x):
        return self.linear(self.function(self, x))


def in_training(function):
    return lambda module, x: function(module, x) if module.training else x


def trial(module, x=X):
    """The trial, after which weights, buffers, modes and the inputs are as before."""
    before, given = {name: each.clone() for name, each in module.state_dict().items()}, x.clone()
    module.eval()
    with torch.random.fork_rng():
        drawn = torch.get_rng_state()
        found = tried(module, module.train, x)
        assert torch.equal(torch.get_rng_state(), drawn)
    after = module.state_dict()
    assert all(torch.equal(after[name].nan_to_num(7.0), each.nan_to_num(7.0)) for name, each in before.items())
    assert torch.equal(x, given)
    assert not module.training
    return found


def written_past_torch(module, x):
    x.numpy()[0, 0] = 9.0
    return x


@pytest.mark.parametrize(
    ("function", "writes"),
    [
        (lambda module, x: x * 2.0, False),
        (in_training(lambda module, x: x.mul_(2.0)), True),
        (in_training(lambda module, x: x.mul_(1.0)), True),
        (lambda module, x: x if module.training else x.mul_(2.0), True),
        (in_training(written_past_torch), True),
    ],
    ids=["not", "in training", "the same values", "in evaluation", "past torch"],
)
def test_writing_into_the_inputs_is_noticed(function, writes):
    assert trial(Module(function)) == ModuleTrial(writes_input=writes)


def test_a_module_that_needs_two_examples_is_found():
    """BatchNorm raises for a single one; a deviation over the batch is NaN. Only NaN tells nothing."""
    normed = trial(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert normed.least_batch == 2
    assert sorted(place.name for place in normed.changing) == ["num_batches_tracked", "running_mean", "running_var"]
    assert trial(Module(lambda module, x: x / x.std(0))).least_batch == 2
    assert trial(Module(lambda module, x: x * torch.nan)).least_batch == 1
    assert trial(Module()).least_batch == 1


def kept_weights(module, x):
    with torch.no_grad():
        module.kept.copy_(module.linear.weight.round(decimals=2))
    return x


def counted(module, x):
    module.seen += 1
    return x


def found(module, x):
    module.absent = torch.zeros(2)
    return x


def widened(module, x):
    module.kept = torch.zeros(3, 2)
    return x


@pytest.mark.parametrize(
    ("function", "name"), [(kept_weights, "kept"), (counted, "seen"), (found, "absent"), (widened, "kept")]
)
def test_buffers_that_training_changes_are_found(function, name):
    assert [place.name for place in trial(Module(in_training(function))).changing] == [name]


def test_a_copy_of_the_weights_changes_because_the_weights_move_between_two_steps():
    module = Module(in_training(lambda module, x: (module.kept.copy_(module.linear.weight.detach()), x)[1]))
    module.kept.copy_(module.linear.weight.detach())
    assert [place.name for place in trial(module).changing] == ["kept"]


def refused(module, x):
    raise RuntimeError("two heads")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (in_training(refused), "on two examples in train mode it raises RuntimeError: two heads"),
        (lambda module, x: module.linear.requires_grad_(False) and x, "its outputs have no gradient"),
    ],
)
def test_a_module_that_does_not_train_is_refused(function, said):
    with pytest.raises(ConfigError, match=f"The model does not train: {said}"):
        trial(Module(function))


@pytest.mark.parametrize("form", [dict, SimpleNamespace])
def test_logits_are_outputs(form):
    assert call(lambda x: form(logits=x, loss=None), X) is X
    assert call(lambda a, b: form(logits=a), {"a": X, "b": None}) is X
    with pytest.raises(ConfigError, match=f"with 'logits'. It returned a {form.__name__}"):
        call(lambda x: form(loss=x), X)
