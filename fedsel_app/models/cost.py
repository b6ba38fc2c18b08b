"""Cost of a model: floating-point operations of its weighted layers, and memory of a training step."""

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


def saved_bytes(module: nn.Module, inputs: Inputs) -> int:
    """Bytes that one sample's forward pass keeps for the backward pass, without the weights.

    `inputs` are one or more samples, on the module's device.
    """
    weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with modes_kept(module), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module.eval()
        outputs = call(module, mapped(torch.clone, inputs))  # its graph must live, so that no address is used twice
    del outputs
    return sum(kept.values()) // _examples(inputs)


def _examples(inputs: Inputs) -> int:
    return len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs)
