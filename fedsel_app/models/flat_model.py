"""Flat model: a module with its parameters in one flat vector and its gradient in another, and its evaluation."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsel_app.config import ConfigError
from fedsel_app.models.array_layout import LayerSlice
from fedsel_app.models.tasks import CLASSIFICATION, Task


class FlatModel:
    """A module whose trainable parameters are views of one vector. `backward` writes the gradient to another vector.

    Parameters
    ----------
    module
        The model. The FlatModel moves it to `device` as float32; other code must not change it after that.
    device
        Device of the computation.
    task
        The training loss and the scores.
    precision
        "bf16" runs the module under torch's autocast; weights, outputs and losses are still float32.

    Attributes
    ----------
    module : nn.Module
    task : Task
    parameters, gradient : float32 tensors of shape (size,)
        Trainable parameters in the order of ``module.parameters()``, and their gradient. The entries of a channels-last
        kernel are in its memory order; `load`, `export` and `arranged` convert from and to row-major order.
    layers : tuple of LayerSlice
        One for each module that has trainable parameters of its own; they tile [0, size).
    size : int
        Number of trainable parameters N.

    Raises
    ------
    ConfigError
        If the model has no trainable parameters.
    """

    def __init__(
        self, module: nn.Module, device: torch.device, task: Task = CLASSIFICATION, precision: str = "fp32"
    ) -> None:
        self.task = task
        self.module = module.to(device=device, dtype=torch.float32)
        if device.type != "cpu":
            self.module.to(memory_format=torch.contiguous_format)
        self._bf16 = precision == "bf16"
        self._tensors: list[nn.Parameter] = []
        layers = []
        seen = set()
        stop = 0
        for name, owner in self.module.named_modules():
            start = stop
            for tensor in owner.parameters(recurse=False):
                if tensor.requires_grad and tensor not in seen:
                    seen.add(tensor)
                    self._tensors.append(tensor)
                    stop += tensor.numel()
            if stop > start:
                layers.append(LayerSlice(name, start, stop))
        if not layers:
            raise ConfigError("The 'model' parameter names a model without trainable parameters. Choose another.")
        self.layers = tuple(layers)
        self.size = stop
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.parameters = torch.empty(stop, dtype=torch.float32, device=device)
        self.gradient = torch.zeros_like(self.parameters)
        self._gradients = self._views(self.gradient)
        for tensor, view in zip(self._tensors, self._views(self.parameters), strict=True):
            tensor.data = view.copy_(tensor.detach())

    def backward(self, x: Tensor, y: Tensor) -> Tensor:
        """Write the gradient of a mini-batch's mean loss to `gradient`, and return that loss, a scalar."""
        loss, gradients = self._gradients_of(x, y)
        torch._foreach_copy_(self._gradients, gradients)
        return loss

    def descend(self, x: Tensor, y: Tensor, lr: float) -> Tensor:
        """Add -`lr` times the gradient of a mini-batch's mean loss to `parameters`, and return that loss.

        `gradient` does not change.
        """
        loss, gradients = self._gradients_of(x, y)
        with torch.no_grad():
            torch._foreach_add_(tuple(self._tensors), gradients, alpha=-lr)
        return loss

    def _gradients_of(self, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = self.task.loss(self.outputs(x), y)
        return loss.detach(), torch.autograd.grad(loss, self._tensors, materialize_grads=True)

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs of the module in its precision, as float32."""
        if not self._bf16:
            return self.module(x)  # type: ignore[no-any-return]
        with self.autocast():
            return self.module(x).float()  # type: ignore[no-any-return]

    def autocast(self) -> torch.autocast:
        """Context in which the module runs in its precision. Within one context, weights are converted only once."""
        return torch.autocast(self.parameters.device.type, torch.bfloat16, enabled=self._bf16)

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """Loss of each example, float32 (n,)."""
        return self.task.losses(self.outputs(x), y)

    def buffers_vector(self) -> NDArray[np.float32]:
        """The floating-point buffers (BatchNorm's running mean and variance), a copy of shape (B,)."""
        buffers = self._buffers()
        if not buffers:
            return np.zeros(0, dtype=np.float32)
        return _as_numpy(torch.cat([buffer.reshape(-1) for buffer in buffers]))

    def set_buffers(self, vector: NDArray[np.float32]) -> None:
        """Set the floating-point buffers to `vector` (B,). Raises ValueError if its length differs."""
        buffers = self._buffers()
        sizes = [buffer.numel() for buffer in buffers]
        _require_length("buffers", vector, sum(sizes))
        for buffer, values in zip(buffers, torch.split(torch.tensor(vector), sizes), strict=True):
            buffer.copy_(values.view_as(buffer))

    def load(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> None:
        """Load the parameters, shape (N,), and buffers, shape (B,). Raises ValueError if a length differs."""
        _require_length("parameters", parameters, self.size)
        self.set_buffers(buffers)
        self._fill(self.parameters, parameters)

    def arranged(self, vector: NDArray[np.float32]) -> Tensor:
        """Copy a vector in row-major order, shape (N,), to the order and the device of `parameters`."""
        arranged = torch.empty_like(self.parameters)
        self._fill(arranged, vector)
        return arranged

    def export(self) -> NDArray[np.float32]:
        """A copy of the parameters in row-major order, shape (N,)."""
        return _as_numpy(torch.cat([tensor.detach().reshape(-1) for tensor in self._tensors]))

    def _fill(self, target: Tensor, vector: NDArray[np.float32]) -> None:
        """Copy `vector`, in row-major order, into `target`, in the order of `parameters`."""
        parts = np.split(vector, np.cumsum(self._sizes)[:-1])
        for view, part in zip(self._views(target), parts, strict=True):
            if view.is_cpu:  # NumPy also copies from read-only arrays, which torch does not accept
                np.copyto(view.numpy(), part.reshape(view.shape))
            else:
                view.copy_(torch.tensor(part).view(view.shape))

    def _views(self, vector: Tensor) -> list[Tensor]:
        """Parts of a vector in the order of `parameters`, with the shapes and strides of the module's tensors."""
        parts = torch.split(vector, self._sizes)
        return [_view_like(tensor, part) for tensor, part in zip(self._tensors, parts, strict=True)]

    def _buffers(self) -> list[Tensor]:
        return [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]


@dataclass(frozen=True)
class Result:
    """Evaluation of a model: mean loss, number of examples, score (see `tasks`) and further metrics by name."""

    loss: float
    examples: int
    score: float
    metrics: Mapping[str, float]

    @property
    def accuracy(self) -> float | None:
        """The score, which messages call accuracy; None if it is undefined."""
        return self.score if math.isfinite(self.score) else None


def evaluate(model: FlatModel, batches: Iterable[tuple[Tensor, Tensor]]) -> Result:
    """Evaluate a model in eval mode, and restore its mode. The loss is summed in float64.

    Raises
    ------
    ValueError
        If `batches` is empty.
    """
    loss = 0.0
    tally = np.zeros(1)
    examples = 0
    with evaluating(model):
        for x, y in batches:
            outputs = model.outputs(x)
            loss += _sum(model.task.losses(outputs, y))
            tally = tally + model.task.tally(outputs, y)
            examples += len(y)
    if examples == 0:
        raise ValueError("There are no examples to evaluate the model on.")
    scores = model.task.scores(tally, loss / examples, examples)
    return Result(loss / examples, examples, scores.score, scores.metrics)


def batch_losses(model: FlatModel, batches: Iterable[tuple[Tensor, Tensor]]) -> list[tuple[float, int]]:
    """Loss of each mini-batch in eval mode, summed over its examples in float64, and the number of its examples."""
    with evaluating(model):
        return [(_sum(model.losses(x, y)), len(y)) for x, y in batches]


@contextmanager
def evaluating(model: FlatModel) -> Iterator[None]:
    """Run the block, which does not change the weights, in eval mode and without gradients, and restore the mode."""
    training = model.module.training
    model.module.eval()
    try:
        with torch.no_grad(), model.autocast():
            yield
    finally:
        model.module.train(training)


def _sum(losses: Tensor) -> float:
    return float(losses.cpu().double().sum())


def _view_like(tensor: Tensor, values: Tensor) -> Tensor:
    """View of `values` (n,) with the shape of `tensor`, channels-last if `tensor` is."""
    if tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous():
        outputs, inputs, height, width = tensor.shape
        return values.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return values.view(tensor.shape)


def _as_numpy(vector: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = vector.cpu().numpy()
    return array


def _require_length(name: str, vector: NDArray[np.float32], size: int) -> None:
    if vector.shape != (size,):
        raise ValueError(f"The model's {name} have shape ({size},). Got {vector.shape}.")
