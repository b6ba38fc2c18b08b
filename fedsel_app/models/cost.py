"""Cost of a model: floating-point operations of its weighted layers."""

from typing import Any

import torch
from torch import Tensor, nn

from fedsel_app.data.inputs import Inputs, mapped
from fedsel_app.models.module_calls import call
from fedsel_app.models.module_state import modes_kept


def forward_flops(module: nn.Module, inputs: Inputs) -> int:
    """Floating-point operations of one sample's forward pass: two for each weight at each place where it is applied.

    `inputs` are one or more samples.

    It counts layers with matrices or filters (linear, convolution). It does not count normalisation, activations or
    attention between positions. The model's mode is restored, and no random number is drawn.
    """
    counts: list[int] = []

    def count(layer: nn.Module, inputs: Any, output: Any) -> None:
        weight = getattr(layer, "weight", None)
        if isinstance(weight, Tensor) and weight.dim() > 1 and isinstance(output, Tensor):
            counts.append(2 * output.numel() * weight[0].numel())

    handles = [layer.register_forward_hook(count) for layer in module.modules()]
    device = next(module.parameters()).device
    try:
        with modes_kept(module), torch.no_grad():
            module.eval()
            call(module, mapped(lambda x: x.to(device, copy=True), inputs))
    finally:
        for handle in handles:
            handle.remove()
    return sum(counts) // _examples(inputs)


def _examples(inputs: Inputs) -> int:
    return len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs)
