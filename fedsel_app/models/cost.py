"""Cost of a model: floating-point operations of its weighted layers, computed without training."""

from typing import Any

import torch
from torch import Tensor, nn


def forward_flops(module: nn.Module, sample_shape: tuple[int, ...]) -> int:
    """Floating-point operations of one sample's forward pass: two for each weight at each place where it is applied.

    It counts layers with matrices or filters (linear, convolution). It does not count normalisation, activations or
    attention between positions. The model's mode is restored, and no random number is drawn.
    """
    counts: list[int] = []

    def count(layer: nn.Module, inputs: Any, output: Any) -> None:
        weight = getattr(layer, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and isinstance(output, Tensor):
            counts.append(2 * output.numel() * weight[0].numel())

    handles = [layer.register_forward_hook(count) for layer in module.modules()]
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            module(torch.zeros(1, *sample_shape, device=next(module.parameters()).device))
    finally:
        module.train(training)
        for handle in handles:
            handle.remove()
    return sum(counts)
