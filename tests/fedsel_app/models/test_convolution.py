"""The convolution's own weight gradient, against sums over the positions and against torch's kernels."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsel_app.models.convolution import WIDEST, Conv2d


def gradients(layer, x, towards, bf16):
    """Output of a layer, and the gradients of <output, towards> by the images, the kernel and the bias."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        y = layer(x)
    return y, *torch.autograd.grad((y.float() * towards).sum(), [x, layer.weight, layer.bias])


def twin(layer):
    """Torch's own convolution with the same weights."""
    plain = nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
    plain.load_state_dict(layer.state_dict())
    return plain


@pytest.fixture(params=["contiguous", "channels-last"])
def order(request):
    return {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}[request.param]


@pytest.mark.parametrize(
    ("size", "kernel", "padding", "stride"), [(4, 3, 1, 1), (5, 2, 0, 1), (7, 3, 1, 2), (3, 3, 0, 1)]
)
def test_bf16_gradients_are_sums_over_all_positions(size, kernel, padding, stride, order):
    """With small integers, every bf16 product and sum is exact, so that loops over the positions give the same bits."""
    rng = np.random.default_rng(size)
    layer = Conv2d(2, 3, kernel, stride, padding)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(rng.integers(-1, 2, layer.weight.shape)))
        layer.bias.zero_()
    layer.to(memory_format=order)
    x = torch.from_numpy(rng.integers(-1, 2, (2, 2, size, size))).float()
    width = (size + 2 * padding - kernel) // stride + 1
    assert width <= WIDEST
    towards = torch.from_numpy(rng.integers(-1, 2, (2, 3, width, width))).float()
    y, by_x, by_weight, by_bias = gradients(layer, x, towards, bf16=True)
    assert type(y.grad_fn).__name__ == "_ConvolutionBackward"

    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    of_x, of_weight = np.zeros_like(padded), np.zeros(layer.weight.shape)
    for n, c, i, j in np.ndindex(*towards.shape):
        part = (n, slice(None), slice(stride * i, stride * i + kernel), slice(stride * j, stride * j + kernel))
        of_weight[c] += float(towards[n, c, i, j]) * padded[part]
        of_x[part] += float(towards[n, c, i, j]) * layer.weight[c].detach().numpy()
    inner = slice(padding, padding + size)
    assert np.array_equal(by_x.numpy(), of_x[:, :, inner, inner])
    assert np.array_equal(by_weight.numpy(), of_weight)
    assert np.array_equal(by_bias.numpy(), towards.sum((0, 2, 3)).numpy())


@pytest.mark.parametrize(("size", "bf16"), [(4, False), (5, False), (5, True)])
def test_it_is_torchs_convolution_for_fp32_and_for_larger_images(size, bf16):
    torch.manual_seed(0)
    layer = Conv2d(3, 5, 3, 1, 1)
    x, towards = torch.randn(4, 3, size, size), torch.randn(4, 5, size, size)
    for ours, theirs in zip(gradients(layer, x, towards, bf16), gradients(twin(layer), x, towards, bf16), strict=True):
        assert torch.equal(ours, theirs)


def test_evaluation_needs_no_gradient():
    torch.manual_seed(0)
    layer, x = Conv2d(3, 5, 3, 1, 1), torch.randn(4, 3, 4, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x), twin(layer)(x))
