import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from clients.curvature import hutchinson_diagonal
from fedsel_app.models.building import build
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.models.tasks import Regression
from tests.support.training import CPU


class Signs:
    """Generator that returns the given signs, one parameter after the other."""

    def __init__(self, signs):
        self.left = np.array(signs, np.float32)

    def choice(self, values, size):
        assert values.tolist() == [-1.0, 1.0]
        given, self.left = self.left[:size], self.left[size:]
        return given


class StraightPieces(Regression):
    """A slope on each side of the target."""

    def loss(self, outputs, y):
        return torch.maximum(0.9 * (y - outputs), 0.1 * (outputs - y)).mean()


def tiny(hidden=2):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        return module, torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1])


def exact_hessian(module, x, y, mu=0.0):
    """Hessian of the loss and mu/2 ||w||^2, by autograd in double precision on a copy of the parameters."""
    named = {name: parameter.detach().double() for name, parameter in module.named_parameters()}
    sizes = [value.numel() for value in named.values()]

    def loss(vector):
        parts = torch.split(vector, sizes)
        tensors = {name: part.view_as(named[name]) for name, part in zip(named, parts, strict=True)}
        return functional.cross_entropy(functional_call(module, tensors, (x.double(),)), y) + mu / 2 * vector @ vector

    start = torch.cat([value.flatten() for value in named.values()])
    return torch.autograd.functional.hessian(loss, start).numpy()


@pytest.mark.parametrize("mu", [0.0, 0.1])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("hidden", [1, 2])
def test_the_mean_over_all_signs_is_the_exact_diagonal(hidden, number, mu):
    module, x, y = tiny(hidden)
    hessian = exact_hessian(module, x, y, mu)
    model = FlatModel(module, CPU)
    span = model.layers[number]
    signs = itertools.product([-1.0, 1.0], repeat=span.stop - span.start)
    mean = np.mean([hutchinson_diagonal(model, [number], x, y, Signs(z), mu)[number] for z in signs], axis=0)
    np.testing.assert_allclose(mean, np.diag(hessian)[span.start : span.stop], atol=1e-6)


def test_one_probe_over_two_layers_is_z_times_hz_and_over_one_with_or_without_the_mixed_derivatives():
    module, x, y = tiny()
    hessian = exact_hessian(module, x, y)
    model = FlatModel(module, CPU)
    z = np.array([1, -1, -1, 1, 1, 1, -1, 1, -1, -1, 1, -1], np.float64)
    found = hutchinson_diagonal(model, [0, 1], x, y, Signs(z))
    np.testing.assert_allclose(np.concatenate([found[0], found[1]]), z * (hessian @ z), atol=1e-6)
    assert {number: part.dtype for number, part in found.items()} == {0: np.float32, 1: np.float32}
    # Signs on all layers bring the mixed derivatives in.
    found = hutchinson_diagonal(model, [1], x, y, Signs(z), signs_on=[0, 1])
    alone = hutchinson_diagonal(model, [1], x, y, Signs(z[6:]))
    np.testing.assert_allclose(found.pop(1), (z * (hessian @ z))[6:], atol=1e-6)
    assert not found
    np.testing.assert_allclose(alone[1], z[6:] * (hessian[6:, 6:] @ z[6:]), atol=1e-6)
    assert np.abs(hessian[6:, :6]).max() > 1e-3


def normed():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(108, 10)
    )


@pytest.mark.parametrize("make", [lambda: build("cnn", (1, 8, 8), 10, 0), normed], ids=["cnn", "normed"])
def test_the_model_stays_as_it_is(make):
    model = FlatModel(make(), CPU)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 1, 8, 8, generator=generator), torch.tensor([0, 1, 2, 3])
    model.backward(x, y)
    before = [model.export(), model.gradient.numpy().copy(), model.buffers_vector()]
    found = hutchinson_diagonal(model, [0, 2], x, y, np.random.default_rng(0))
    for old, new in zip(before, [model.export(), model.gradient.numpy(), model.buffers_vector()], strict=True):
        assert old.tobytes() == new.tobytes()
    assert all(parameter.grad is None for parameter in model.module.parameters())
    for number, estimate in found.items():
        assert estimate.shape == (model.layers[number].stop - model.layers[number].start,)


def test_a_loss_in_straight_pieces_has_the_curvature_of_the_proximal_term():
    model = FlatModel(nn.Linear(2, 1), CPU, StraightPieces())
    found = hutchinson_diagonal(model, [0], torch.ones(3, 2), torch.zeros(3, 1), np.random.default_rng(0), 0.1)
    np.testing.assert_allclose(found[0], 0.1)


def test_frozen_parameters_are_passed_over():
    module, x, y = tiny()
    expected = hutchinson_diagonal(FlatModel(tiny()[0], CPU), [1], x, y, Signs([1, -1, 1, 1, -1, 1]))
    module[0].requires_grad_(False)
    found = hutchinson_diagonal(FlatModel(module, CPU), [0], x, y, Signs([1, -1, 1, 1, -1, 1]))
    assert found[0].tobytes() == expected[1].tobytes()


def test_in_train_mode_the_hessian_is_that_of_the_batch_statistics_and_the_running_ones_stay():
    """With every sign of a BatchNorm's four parameters the mean is the diagonal; autograd's Hessian is the witness."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        x, y = torch.randn(5, 2), torch.tensor([0, 1, 0, 1, 1])
    model = FlatModel(module, CPU)
    before = model.buffers_vector()
    span = model.layers[1]
    signs = list(itertools.product([-1.0, 1.0], repeat=span.stop - span.start))
    mean = np.mean([hutchinson_diagonal(model, [1], x, y, Signs(z), training=True)[1] for z in signs], axis=0)
    assert np.array_equal(model.buffers_vector(), before)
    assert not module.training
    witness = copy.deepcopy(module).double().train()
    np.testing.assert_allclose(mean, np.diag(exact_hessian(witness, x, y))[span.start : span.stop], atol=1e-6)
