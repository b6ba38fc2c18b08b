"""Channels-last order: a model's kernels, images and gradients where convolutions on a CPU are faster."""

import torch
from torch import Tensor, nn


def channels_last(model: nn.Module) -> nn.Module:
    """Put a model's kernels, and on a CPU the images that it gets, into channels-last order.

    fedsel's own models for images have it. It is not done for users' own models unasked: `view` of such a tensor raises
    where `reshape` or `nn.Flatten` does not. The values that go in and out are the same.
    """
    model.register_forward_pre_hook(_images_channels_last)
    for module in model.modules():
        if isinstance(module, nn.Flatten):
            module.register_forward_pre_hook(_gradient_channels_last)
    return model.to(memory_format=torch.channels_last)


def _images_channels_last(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(_with_channel_strides(x) if x.is_cpu else x for x in inputs)


def _with_channel_strides(x: Tensor) -> Tensor:
    """The images (n, C, H, W) in channels-last order. With one channel both orders are one, and the strides tell."""
    if x.shape[1] == 1:
        return x.reshape(-1, *x.shape[2:], 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def _gradient_channels_last(flatten: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Let the gradient of what is flattened come back in its order: layers before would put it there one by one."""
    for x in inputs:
        if x.is_cpu and x.requires_grad and x.dim() == 4:
            x.register_hook(_with_channel_strides)  # type: ignore[no-untyped-call]
