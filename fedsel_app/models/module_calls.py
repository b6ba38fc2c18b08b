"""Calls of a module: inputs as a tensor or by name, outputs as a tensor or as `logits`; a trial, and the cost."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import described
from fedsel_app.data.inputs import Inputs, mapped
from fedsel_app.models.device import naming_lack_of_memory, seeded
from fedsel_app.models.module_state import Attributes, Place, buffer_places, frozen_places, modes_kept
from fedsel_app.records.files import MachineFault

SHIFT = 1e-3
"""What is added to the weights between two steps of a trial, so that a moving average of them moves."""


@dataclass(frozen=True)
class ModuleTrial:
    """What a trial shows of a module. The defaults are those of a module that was not tried."""

    writes_input: bool = False
    """It changes its input in place, so it must get a copy."""
    least_batch: int = 1
    """Number of examples that a mini-batch must have in training: 2 with BatchNorm over single values."""
    changing: tuple[Place, ...] = ()
    """Buffers and frozen parameters that training changes."""
    attributes: Attributes | None = field(default=None, compare=False)
    """What training changes besides; None: it is not known."""


def call(module: nn.Module, x: Inputs) -> Tensor:
    """Outputs of a module: what it returns, or the `logits` of the object or of the dict that it returns.

    Inputs by name are keyword arguments.

    Raises ConfigError if it returns neither.
    """
    given = module(**x) if isinstance(x, dict) else module(x)
    if isinstance(given, Tensor):
        return given
    logits = given.get("logits") if isinstance(given, Mapping) else getattr(given, "logits", None)
    if not isinstance(logits, Tensor):
        raise ConfigError(
            f"The model must return a tensor of its outputs, or an object or a dict with 'logits'. It returned a "
            f"{type(given).__name__}."
        )
    return logits


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
    examples = len(next(iter(inputs.values())) if isinstance(inputs, dict) else inputs)
    return sum(counts) // examples


def tried(module: nn.Module, train: Callable[[], None], x: Inputs) -> ModuleTrial:
    """Try a module on the two inputs `x`; its state, its modes and the random generators are as before.

    `train` sets the module's mode of training.

    Raises ConfigError if it cannot train with two examples, and MachineFault if the memory does not suffice for them.
    """
    before = {place: place.copy() for place in buffer_places(module) | frozen_places(module)}
    attributes = Attributes(module)
    weights = [(each, each.detach().clone()) for each in module.parameters() if each.requires_grad]
    with modes_kept(module), seeded(0, _tensors(x)[0].device), torch.no_grad():
        train()
        try:
            with naming_lack_of_memory("The trial of the model"):
                outputs, writes_input = _stepped(module, x)
                for weight, _ in weights:
                    weight.add_(SHIFT)
                _stepped(module, x)
        except (ConfigError, MachineFault):
            raise
        except Exception as error:
            raise ConfigError(
                f"The model does not train: on two examples in train mode it raises {described(error)}. Correct its "
                "forward."
            ) from error
        changing = tuple(place for place, value in before.items() if not _same(place.tensor, value))
        _restore(weights)
        least_batch, single = 2, None
        with suppress(Exception):
            single, _ = _called(module, mapped(lambda each: each[:1], x))
        if single is not None and (single.isfinite().all() or not outputs.isfinite().all()):
            least_batch = 1
        module.eval()
        writes_input |= _called(module, x)[1]
        for place, value in before.items():
            place.put(value)
        _restore(weights)
    attributes.keep_changed()
    attributes.put()
    return ModuleTrial(writes_input, least_batch, changing, attributes)


def _restore(weights: Sequence[tuple[Tensor, Tensor]]) -> None:
    for weight, value in weights:  # some modules initialise them from the first mini-batch
        if not torch.equal(weight, value):
            weight.copy_(value)


def _stepped(module: nn.Module, x: Inputs) -> tuple[Tensor, bool]:
    """What `_called` returns, after the gradient of the outputs was computed.

    Raises ConfigError if the outputs do not depend on the trainable parameters.
    """
    weights = [each for each in module.parameters() if each.requires_grad]
    with torch.enable_grad():
        outputs, writes_input = _called(module, x)
        if not outputs.requires_grad:
            raise ConfigError(
                "The model does not train: its outputs have no gradient for its parameters. Compute them in its "
                "forward without detach() and torch.no_grad()."
            )
        torch.autograd.grad(outputs.float().square().sum(), weights, materialize_grads=True)
    return outputs.detach(), writes_input


def _called(module: nn.Module, x: Inputs) -> tuple[Tensor, bool]:
    """Outputs for a copy of the inputs, and True if the call changed the copy."""
    copies = mapped(torch.clone, x)
    outputs = call(module, copies)
    written = [
        copy._version > 0 or not torch.equal(copy, given)
        for copy, given in zip(_tensors(copies), _tensors(x), strict=True)
    ]
    return outputs, any(written)


def _tensors(x: Inputs) -> list[Tensor]:
    return list(x.values()) if isinstance(x, dict) else [x]


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    """True if two buffers have the same values; NaN equals NaN."""
    if one is None or other is None or one.shape != other.shape:
        return one is other
    if not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
