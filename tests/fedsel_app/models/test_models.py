import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsel_app.config import ConfigError
from fedsel_app.models.building import build
from fedsel_app.models.flat_model import FlatModel, batch_losses, evaluate
from fedsel_app.models.layer_slice import LayerSlice
from tests.support.training import CPU, TorchOptimizer


def tiny(seed=0):
    """Convolution with BatchNorm, and a linear layer; on 1x4x4 inputs, 3 classes."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def batch(count=6, seed=1):
    rng = np.random.default_rng(seed)
    x = torch.tensor(rng.normal(size=(count, 1, 4, 4)), dtype=torch.float32)
    return x, torch.tensor(rng.integers(3, size=count))


def flat(sample_shape, outputs):
    return nn.Sequential(nn.Linear(*sample_shape, outputs), nn.Flatten(0))


def not_a_model(sample_shape, classes):
    return "model"


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("alexnet", (3, 32, 32), 10, 2_781_514),
        ("resnet9", (3, 32, 32), 100, 6_621_540),
        ("resnet18", (3, 64, 64), 200, 11_271_432),
        ("cnn", (1, 28, 28), 10, 160 + 4_640 + (1568 * 64 + 64) + 650),
        # McMahan et al. 2017 print the 2NN's and the CNN's count for MNIST; FEMNIST has 52 classes of 513 more.
        ("mlp", (1, 28, 28), 10, 199_210),
        # 6 * 26 + 16 * 151 + 120 * 257 + 84 * 121 + 10 * 85 by hand.
        ("lenet", (1, 28, 28), 10, 156 + 2416 + 30_840 + 10_164 + 850),
        ("cnn4", (1, 28, 28), 10, 1_663_370),
        # By hand: 3x3 convolutions 3-32-64-64 of 896, 18,496 and 36,928, then 1,024-64-10.
        ("cnn5", (3, 32, 32), 10, 896 + 18_496 + 36_928 + 65_600 + 650),
        # 5x5 convolutions 3-64-128, then 3,200-256-128-100.
        ("cnn5-wide", (3, 32, 32), 100, 4_864 + 204_928 + 819_456 + 32_896 + 12_900),
        # Stem 5,504; stages of 49,664, 181,504, 723,456 and 2,888,704; 6 labels of 513.
        ("resnet1d18", (12, 1000), 6, 5_504 + 49_664 + 181_504 + 723_456 + 2_888_704 + 6 * 513),
        # The count that torchvision publishes with its weights.
        ("swin-t", (3, 64, 64), 1000, 28_288_354),
    ],
)
def test_parameter_counts_are_the_papers(name, shape, classes, parameters):
    with torch.device("meta"):
        assert FlatModel(build(name, shape, classes, seed=0), torch.device("meta")).size == parameters


def test_resnet1d18_is_resnet18_along_a_line():
    """It equals ResNet-18 with only the middle rows of its kernels, on images that are one pixel high."""
    from torchvision.models import resnet18

    line, plane = build("resnet1d18", (12, 100), 6, seed=1).eval(), resnet18(num_classes=6).eval()
    plane.conv1 = nn.Conv2d(12, 64, 7, 2, 3, bias=False)
    thin = list(line.parameters())
    names = dict(plane.named_parameters())
    for (name, parameter), values in zip(names.items(), thin, strict=True):
        nn.init.zeros_(parameter)
        middle = parameter[..., parameter.shape[-2] // 2, :] if parameter.ndim == 4 else parameter
        assert middle.shape == values.shape, name
        middle.data.copy_(values)
    x = torch.tensor(np.random.default_rng(0).normal(size=(2, 12, 100)), dtype=torch.float32)
    torch.testing.assert_close(line(x), plane(x[:, :, None]), rtol=1e-4, atol=1e-5)


def test_the_seed_alone_decides_the_weights_and_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    first, again, other = (FlatModel(build("cnn", (1, 8, 8), 10, seed), CPU).export() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    torch.default_generator.manual_seed(77)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(first, FlatModel(build("cnn", (1, 8, 8), 10, 1), CPU).export())
    torch.set_rng_state(before)


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("resnet-9", (3, 32, 32), "one of linear, logistic, mlp, cnn.*Did you mean 'resnet9'"),
        ("alexnet", (1, 8, 8), r"alexnet needs images of at least 15x15.*\(1, 8, 8\)"),
        ("swin-t", (12, 1000), r"needs images.*\(12, 1000\)"),
        ("resnet1d18", (3, 32, 32), r"needs signals of shape \(channels, values\).*\(3, 32, 32\)"),
        (f"{__name__}:not_a_model", (3,), "must return a torch.nn.Module. Got str"),
        (f"{__name__}:flat", (3,), r"outputs of shape \(20,\) for two samples.* needs \(2, 10\): 10 outputs for each"),
        (f"{__name__}:absent", (3,), "'model' parameter names 'absent'.*no such function"),
    ],
)
def test_models_that_cannot_be_built_are_refused(name, shape, said):
    with pytest.raises(ConfigError, match=said):
        build(name, shape, 10, seed=0)


def test_a_users_model_may_leave_out_the_dimension_of_a_single_output():
    assert build(f"{__name__}:flat", (3,), 1, seed=0)(torch.zeros(2, 3)).shape == (2,)


def test_frozen_and_shared_parameters():
    module = tiny()
    module[1].weight.requires_grad_(False)
    module.append(nn.Linear(3, 3))
    module.append(module[-1])
    model = FlatModel(module, CPU)
    assert model.layers[1:] == (LayerSlice("1", 20, 22), LayerSlice("4", 22, 49), LayerSlice("5", 49, 61))
    with pytest.raises(ConfigError, match="without trainable parameters"):
        FlatModel(nn.ReLU(), CPU)


def test_a_flat_step_is_torchs_sgd_bit_for_bit():
    plain, model = tiny(), FlatModel(tiny(), CPU)
    optimizer = TorchOptimizer("sgd", plain, lr=0.1, momentum=0.9)
    velocity = torch.zeros(51)
    for step in range(4):
        x, y = batch(seed=step)
        optimizer.zero_grad()
        functional.cross_entropy(plain(x), y).backward()
        optimizer.step()

        model.backward(x, y)
        velocity = model.gradient.clone() if step == 0 else velocity.mul_(0.9).add_(model.gradient)
        model.parameters.add_(velocity, alpha=-0.1)
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in plain.parameters()])
    assert torch.equal(model.parameters, expected)
    assert all(torch.equal(a, b) for a, b in zip(model.module.parameters(), plain.parameters(), strict=True))


def test_channels_last_kernels_are_converted_from_and_to_row_major_order():
    model = FlatModel(build("cnn5", (3, 18, 18), 10, seed=0), CPU)
    plain = torch.cat([parameter.detach().flatten() for parameter in build("cnn5", (3, 18, 18), 10, 0).parameters()])
    assert np.array_equal(model.export(), plain.numpy())
    kernel = model.module[3].weight
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert not kernel.is_contiguous()
    values = np.arange(model.size, dtype=np.float32)
    model.load(values, model.buffers_vector())
    assert np.array_equal(model.export(), values)
    assert torch.equal(model.arranged(values), model.parameters)
    assert not np.array_equal(model.parameters.numpy(), values)
    layer = model.layers[1]
    expected = torch.arange(layer.start, layer.start + kernel.numel()).view(kernel.shape)
    assert torch.equal(kernel.detach(), expected.float())


@pytest.mark.parametrize("name", ["logistic", "cnn5"])
def test_a_step_of_plain_descent_is_minus_the_rate_times_the_gradient(name):
    shape = (3, 18, 18)
    first, second = (FlatModel(build(name, shape, 10, seed=0), CPU) for _ in range(2))
    x, y = torch.randn(4, *shape, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 3])
    loss = first.backward(x, y)
    first.parameters.add_(first.gradient, alpha=-0.3)
    assert second.descend(x, y, 0.3) == loss
    assert torch.equal(second.parameters, first.parameters)
    assert not second.gradient.any()
    assert np.array_equal(second.export(), first.export())


def trained(precision, steps=2):
    """AlexNet without dropout after some steps of SGD: its parameters and the last loss."""
    model = FlatModel(build("alexnet", (3, 32, 32), 10, seed=0).eval(), CPU, precision=precision)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        x = torch.randn(16, 3, 32, 32, generator=generator)
        loss = model.backward(x, torch.randint(10, (16,), generator=generator))
        model.parameters.add_(model.gradient, alpha=-0.1)
    assert model.parameters.dtype == model.gradient.dtype == loss.dtype == model.outputs(x).dtype == torch.float32
    return model.export(), float(loss)


def test_bf16_stays_near_fp32_and_has_bits_of_its_own():
    """A bf16 number has eight significant bits. For noise, whose gradients nearly cancel, the change of the weights
    agrees within 15 percent (a cosine above 0.98), and the loss within 1 percent.
    """
    start = FlatModel(build("alexnet", (3, 32, 32), 10, seed=0), CPU).export()
    (full, full_loss), (half, half_loss) = trained("fp32"), trained("bf16")
    assert not np.array_equal(half, full)
    assert np.linalg.norm(half - full) < 0.15 * np.linalg.norm(full - start)
    assert half_loss == pytest.approx(full_loss, rel=0.01)


def test_an_evaluation_in_bf16_follows_the_weights():
    """Within one evaluation the weights in bf16 are kept; the next one converts the new weights."""
    model, fresh = (FlatModel(build("cnn", (1, 8, 8), 10, seed=0), CPU, precision="bf16") for _ in range(2))
    generator = torch.Generator().manual_seed(3)
    batches = [(torch.randn(8, 1, 8, 8, generator=generator), torch.arange(8)) for _ in range(3)]
    one_by_one = [float(model.losses(x, y).detach().double().sum()) for x, y in batches]
    assert [loss for loss, _ in batch_losses(model, batches)] == pytest.approx(one_by_one, rel=1e-6)
    model.backward(*batches[0])
    model.parameters.sub_(model.gradient)
    fresh.load(model.export(), model.buffers_vector())
    assert batch_losses(model, batches) == batch_losses(fresh, batches)


def test_vectors_of_the_wrong_length_are_refused():
    model = FlatModel(tiny(), CPU)
    with pytest.raises(ValueError, match=r"parameters have shape \(51,\). Got \(50,\)"):
        model.load(np.zeros(50, dtype=np.float32), model.buffers_vector())
    with pytest.raises(ValueError, match=r"buffers have shape \(4,\). Got \(3,\)"):
        model.state.set(np.zeros(3, dtype=np.float32))


def test_evaluate_by_hand():
    """The identity on two logits: (0, log 3) for class 1 loses log(4/3), for class 0 log 4; (log 3, 0) mirrors it."""
    model = FlatModel(nn.Linear(2, 2), CPU)
    model.load(np.float32([1, 0, 0, 1, 0, 0]), model.buffers_vector())
    a, b = [0.0, math.log(3)], [math.log(3), 0.0]
    batches = [(torch.tensor([a, a]), torch.tensor([1, 0])), (torch.tensor([b]), torch.tensor([0]))]
    result = evaluate(model, batches)
    assert result.loss == pytest.approx((math.log(4 / 3) + math.log(4) + math.log(4 / 3)) / 3, rel=1e-6)
    assert (result.scores, result.examples) == ({"accuracy": 2 / 3}, 3)
