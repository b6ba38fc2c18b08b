"""Solvers' corrections and states on vectors by hand. Whole rounds are in tests/runs/test_solver_rounds.py."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clients.local_training import train
from fedsel_app.config import TrainingConfig
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.solvers import EQUATIONS, Steps
from tests.support.training import CPU, TorchOptimizer, minibatches
from tests.support.uploads import vector

ZERO = vector(0, 0)


def test_scaffold_by_hand():
    """Two steps of lr 0.5 moved (3, -1): a mean gradient of (-3, 1). c = (1, 1), c_i = (0, 2) -> c_i+ = (-4, 2)."""
    scaffold, steps = EQUATIONS["scaffold"], Steps(vector(3, -1), 2, 0.5, pull=0.0)
    control, state = vector(1, 1), {"control": vector(0, 2)}
    assert scaffold.term(state, control).tolist() == [1, -1]
    kept, change = scaffold.state(state, control, steps)
    assert kept["control"].tolist() == [-4, 2]
    assert change.tolist() == [-4, 0]
    kept, change = scaffold.state({}, control, steps)
    assert scaffold.term({}, control).tolist() == [1, 1]
    assert kept["control"].tolist() == change.tolist() == [-4, 0]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffolds_control_variate_is_the_mean_gradient(momentum):
    """Of a constant gradient g the steps go along g - c_i + c, and c_i becomes g."""
    scaffold, training = EQUATIONS["scaffold"], TrainingConfig(solver="scaffold", momentum=momentum)
    gradient, control, state = vector(2, -3), vector(0.5, 1), {"control": vector(-1, 4)}
    position, buffer = np.zeros(2), np.zeros(2)
    for _ in range(6):
        buffer = momentum * buffer + gradient + scaffold.term(state, control)
        position -= 0.1 * buffer
    steps = Steps(position.astype(np.float32), training.effective_steps(6), 0.1, training.proximal)
    kept, _ = scaffold.state(state, control, steps)
    np.testing.assert_allclose(kept["control"], gradient, rtol=1e-5)


def test_feddyn_by_hand():
    feddyn, steps = EQUATIONS["feddyn"], Steps(vector(4, -2), 9, 0.1, pull=0.5)
    state = {"gradient": vector(1, 2)}
    assert feddyn.term(state, ZERO).tolist() == [-1, -2]
    assert feddyn.state(state, ZERO, steps)[0]["gradient"].tolist() == [-1, 3]
    assert feddyn.term({}, ZERO) is None
    assert feddyn.state({}, ZERO, steps)[0]["gradient"].tolist() == [-2, 1]


@pytest.mark.parametrize("solver", ["sgd", "fedprox", "fednova"])
def test_the_others_remember_and_send_nothing(solver):
    assert EQUATIONS[solver].term({}, ZERO) is None
    assert EQUATIONS[solver].state({}, ZERO, Steps(vector(1, 2), 3, 0.1, pull=0.1)) == ({}, None)


def linear():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Linear(6, 3)


@pytest.mark.parametrize(("solver", "pull"), [("feddyn", 0.3), ("scaffold", 0.0)])
def test_the_correction_is_a_linear_term_of_the_loss(solver, pull):
    module = linear()
    plain = copy.deepcopy(module)
    constant = torch.linspace(-1, 1, 21)
    training = TrainingConfig(solver=solver, feddyn_alpha=0.3, momentum=0.0, clip_norm=0.0)
    model = FlatModel(module, CPU)
    start = model.parameters.clone()
    train(model, minibatches(5), training, 0.1, constant)
    optimizer = TorchOptimizer("sgd", plain, lr=0.1)
    for x, y in minibatches(5):
        optimizer.zero_grad()
        flat = torch.cat([parameter.flatten() for parameter in plain.parameters()])
        distance = (flat - start).square().sum()
        (functional.cross_entropy(plain(x), y) + constant @ flat + 0.5 * pull * distance).backward()
        optimizer.step()
    flat = torch.cat([parameter.detach().flatten() for parameter in plain.parameters()])
    torch.testing.assert_close(model.parameters, flat)


def test_only_fedprox_reads_mu():
    module, trained = linear(), {}
    for solver in ("sgd", "fednova", "scaffold", "fedprox"):
        for mu in (0.0, 0.5):
            model = FlatModel(copy.deepcopy(module), CPU)
            train(model, minibatches(5), TrainingConfig(solver=solver, mu=mu), 0.1)
            trained[solver, mu] = model.parameters
    plain = trained["sgd", 0.0]
    same = [key for key, weights in trained.items() if torch.equal(weights, plain)]
    assert sorted(same) == sorted(key for key in trained if key != ("fedprox", 0.5))
