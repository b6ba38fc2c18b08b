"""The parts of a module's state, and what a trial shows, by hand."""

import random

import numpy as np
import torch
from torch import nn

from fedsel_app.models.building import build
from fedsel_app.models.device import seeded
from fedsel_app.models.flat_model import FlatModel
from tests.cases import models as kinds
from tests.support.training import CPU

DIGITS = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def flat(name, inputs=DIGITS, **arguments):
    module = build(f"tests.cases.models:{name}", (1, 8, 8), 10, 0, inputs)
    return FlatModel(module, CPU, trial=inputs, **arguments)


def state_of(name, **arguments):
    return flat(name, **arguments).state


def test_statistics_come_first_and_their_variances_are_marked():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = kinds.spectral((1, 8, 8), 16)
            self.norm, self.out = nn.BatchNorm1d(16), nn.Linear(16, 10)

        def forward(self, x):
            return self.out(self.norm(self.up(x)))

    model = FlatModel(Mixed(), CPU, trial=DIGITS)
    assert model.state.variances.tolist() == [False] * 16 + [True] * 16
    # 16 means and 16 variances, then spectral norm's two vectors of 16 and 64.
    assert model.buffers_vector().shape == (32 + 16 + 64,)
    values = np.arange(112, dtype=np.float32)
    model.state.set(values, batches=7)
    assert model.module.norm.running_mean.tolist() == list(range(16))
    assert model.module.norm.running_var.tolist() == list(range(16, 32))
    assert model.module.norm.num_batches_tracked == 7
    assert np.array_equal(model.buffers_vector(), values)


def test_no_message_has_anything_of_the_one_before():
    """The counter of BatchNorm, a constant that someone changed, and a flag are those of the message."""
    model = flat("cumulative")
    start = model.export(), model.buffers_vector()
    x = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    found = []
    for _ in range(2):
        model.load(*start)
        model.state.train()
        model.outputs(x)
        found.append(model.buffers_vector())
    assert np.array_equal(*found)
    # With momentum None the statistics after one mini-batch are those of the mini-batch.
    hidden = model.module[1](x.flatten(1))
    np.testing.assert_allclose(found[0][:16], hidden.mean(0).detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0][16:], hidden.var(0).detach().numpy(), rtol=1e-5)
    # Statistics to which three mini-batches contributed: the fourth has the weight 1/4.
    model.load(*start, batches=3)
    model.state.train()
    model.outputs(x)
    np.testing.assert_allclose(model.buffers_vector()[:16], found[0][:16] / 4, rtol=1e-5, atol=1e-6)

    masked = flat("masked")
    masked.module.mask.zero_()
    masked.load(masked.export(), masked.buffers_vector())
    assert torch.isinf(masked.module.mask).sum() == 28


def test_global_generators_are_seeded_while_a_model_is_built_and_restored():
    np.random.seed(5)  # noqa: NPY002
    first, second = (kinds_weight(seed) for seed in (0, 0))
    assert torch.equal(first, second)
    assert not torch.equal(first, kinds_weight(1))
    drawn = np.random.rand()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    assert drawn == np.random.rand()  # noqa: NPY002


class Counts(nn.Module):
    """Keeps outside its tensors what its forward changes."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 10), nn.Linear(10, 10)
        self.steps, self.seen, self.draws = 0, [[]], random.Random(3)
        self.both = [self.inner, self.outer]

    def forward(self, x):
        self.steps += 1
        self.seen[0].append(len(x))
        self.last = self.both[0](x.flatten(1)) * (1 + self.draws.random()) + self.steps
        return self.both[1](self.last)


def test_what_a_module_keeps_outside_its_tensors_is_as_it_was_built_for_each_message():
    model = FlatModel(Counts(), CPU, trial=torch.zeros(2, 1, 8, 8))
    loaded = model.export(), model.buffers_vector()
    module, outputs = model.module, []
    for _ in range(2):
        model.load(*loaded)
        assert (module.steps, module.seen, hasattr(module, "last")) == (0, [[]], False)
        assert module.both == [module.inner, module.outer]
        outputs.append([model.outputs(torch.ones(3, 1, 8, 8)) for _ in range(2)])
    assert all(torch.equal(*each) for each in zip(*outputs, strict=True))
    assert not torch.equal(*outputs[0])


def test_pythons_generator_is_seeded_while_a_model_trains_and_restored():
    random.seed(5)
    with seeded(1, CPU):
        first = random.random()
    drawn = random.random()
    with seeded(1, CPU):
        assert first == random.random()
    random.seed(5)
    assert drawn == random.random()


def kinds_weight(seed):
    return build("tests.cases.models:frozen_by_numpy", (1, 8, 8), 10, seed)[1].weight


# Marks --------------------------------------------------------------------------------------------------------


def test_constants_are_all_that_never_travels():
    assert state_of("masked_positional").constants == ("mask", "positions")
    assert state_of("frozen_by_numpy").constants == ("1.weight", "1.bias")
    assert state_of("frozen_layer").constants == (*("2.weight", "2.bias", "2.running_mean", "2.running_var"),)
    assert state_of("with_means").constants == state_of("spectral").constants == ()


# Calls --------------------------------------------------------------------------------------------------------
