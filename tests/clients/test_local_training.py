import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from clients.local_training import DivergenceError, gradient_deviation, loss_moments, train
from fedsel_app.config import TrainingConfig
from fedsel_app.messages.scalars import Report
from fedsel_app.models.flat_model import FlatModel
from tests.support.training import CPU, TorchOptimizer, minibatches, network

STEPS = 12


def settings(**changed):
    plain = {"mu": 0.0, "momentum": 0.0, "clip_norm": 0.0, "weight_decay": 0.0}
    return TrainingConfig(**(plain | changed))


def flat(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def torch_steps(batches, name="sgd", clip_norm=0.0, mu=0.0, **options):
    """The same steps by torch's own optimizer, and autograd for the proximal term."""
    module = network()
    anchors = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer = TorchOptimizer(name, module, **options)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(x), y)
        losses.append(loss.item())
        distance = sum((p - a).square().sum() for p, a in zip(module.parameters(), anchors, strict=True))
        (loss + 0.5 * mu * distance if mu else loss).backward()
        if clip_norm:
            nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
        optimizer.step()
    return flat(module), float(np.mean(losses))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("name", "lr"), [("sgd", 0.1), ("adam", 0.01), ("adamw", 0.01)])
def test_without_mu_steps_are_torchs_bit_for_bit(name, lr, momentum, weight_decay):
    config = settings(optimizer=name, momentum=momentum, weight_decay=weight_decay)
    model = FlatModel(network(), CPU)
    mean_loss, steps = train(model, minibatches(), config, lr)
    decays = {"momentum": momentum} if name == "sgd" else {"beta1": momentum, "beta2": 0.999}
    expected, loss = torch_steps(minibatches(), name, lr=lr, weight_decay=weight_decay, **decays)
    assert torch.equal(model.parameters, expected)
    assert steps == STEPS
    assert mean_loss == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize(("mu", "clip_norm"), [(0.0, 0.3), (0.5, 0.0), (5.0, 0.3)])
def test_clipping_and_the_proximal_term_agree_with_torch(mu, clip_norm):
    """The term is the gradient of mu/2 times the squared distance, and counts towards the clipped norm."""
    model = FlatModel(network(), CPU)
    mean_loss, _ = train(model, minibatches(), settings(mu=mu, clip_norm=clip_norm, momentum=0.9), 0.1)
    expected, loss = torch_steps(minibatches(), mu=mu, clip_norm=clip_norm, lr=0.1, momentum=0.9)
    torch.testing.assert_close(model.parameters, expected, rtol=1e-5, atol=1e-6)
    assert mean_loss == pytest.approx(loss, rel=1e-5)  # the proximal term is no part of it


@pytest.mark.parametrize(("scale", "lr"), [(1.0, 0.1), (1e-9, 1e8)])
def test_a_clip_norm_that_is_never_reached_changes_nothing(scale, lr):
    """Also where the gradient is shorter than the 1e-6 that keeps its norm from zero."""
    bounded = FlatModel(nn.Linear(6, 3, bias=False), CPU)
    free = FlatModel(copy.deepcopy(bounded.module), CPU)
    train(bounded, minibatches(scale=scale), settings(clip_norm=1e6, momentum=0.9), lr)
    train(free, minibatches(scale=scale), settings(momentum=0.9), lr)
    assert torch.equal(bounded.parameters, free.parameters)


def test_momentum_starts_at_zero_every_time():
    """Two rounds of one step each are two plain steps."""
    with_momentum, plain = FlatModel(network(), CPU), FlatModel(network(), CPU)
    for batch in minibatches()[:2]:
        train(with_momentum, [batch], settings(momentum=0.9), 0.1)
    train(plain, minibatches()[:2], settings(), 0.1)
    assert torch.equal(with_momentum.parameters, plain.parameters)


@pytest.mark.parametrize(("steps", "lr", "named"), [(STEPS, 1e30, r"1e\+30"), (1, 1e38, r"1e\+38")])
def test_divergence_even_in_the_last_step_is_an_error_that_names_the_learning_rate(steps, lr, named):
    with pytest.raises(DivergenceError, match=rf"diverged at learning rate {named}.*'clip-norm'"):
        train(FlatModel(nn.Linear(6, 3), CPU), minibatches(steps, scale=1e10), settings(), lr)


def test_no_minibatch_is_an_error():
    with pytest.raises(ValueError, match="no mini-batch"):
        train(FlatModel(network(), CPU), [], settings(), 0.1)


def uneven_batches():
    """Mini-batches of 10, 4 and 10 examples."""
    first, second, third = minibatches(3)
    return [first, (second[0][:4], second[1][:4]), third]


def test_the_loss_moments_are_over_the_examples():
    module, batches = network(), uneven_batches()
    with torch.no_grad():
        losses = [
            functional.cross_entropy(module(x[None]), y[None]).item() for b in batches for x, y in zip(*b, strict=True)
        ]
    assert len(losses) == 24
    found = loss_moments(FlatModel(module, CPU), batches)
    expected = {Report.INITIAL_LOSS: np.mean(losses), Report.RMS_LOSS: np.sqrt(np.mean(np.square(losses)))}
    assert found == pytest.approx(expected, rel=1e-6)
    assert found[Report.RMS_LOSS] > 1.01 * found[Report.INITIAL_LOSS]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_gradient_deviation_is_over_the_mini_batches(count):
    module, batches = network(), uneven_batches()[:count]
    gradients = []
    for x, y in batches:
        module.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        gradients.append(np.concatenate([parameter.grad.flatten().double() for parameter in module.parameters()]))
    mean = sum(gradients) / count
    expected = np.sqrt(sum(np.square(gradient - mean).sum() for gradient in gradients) / count)
    assert gradient_deviation(FlatModel(network(), CPU), batches) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert count == 1 or expected > 0.1
