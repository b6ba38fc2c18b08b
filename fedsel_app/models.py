"""Architectures, and a model whose parameters and gradients are each one flat vector."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from fedsel_app.config import ConfigError
from fedsel_app.plugins import load_object, unknown_name
from fedsel_app.seeds import Purpose, torch_seed


def build(name: str, sample_shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Build a model with torch's default initialisation, the same for the same arguments.

    Torch's global generator stays as it was.

    Parameters
    ----------
    name
        One of MODELS, or "package.module:function", called as function(sample_shape, classes).
    sample_shape
        Shape of one sample: (C, H, W) for images, anything for logistic.
    classes
        Number of outputs.
    seed
        Seed of the run.

    Raises
    ------
    ConfigError
        Where there is no such model, or it cannot take such samples.
    """
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it would seed the GPUs as well.
        torch.default_generator.manual_seed(torch_seed(seed, Purpose.INIT))
        if ":" in name:
            model = load_object(name, "model")(sample_shape, classes)
            if not isinstance(model, nn.Module):
                raise ConfigError(f"The function '{name}' must return a torch.nn.Module. Got {type(model).__name__}.")
            return model
        if name not in MODELS:
            raise unknown_name("model", name, MODELS)
        builder, smallest_side = MODELS[name]
        if smallest_side and (len(sample_shape) != 3 or min(sample_shape[1:]) < smallest_side):
            raise ConfigError(
                f"The 'model' parameter {name} needs images of at least {smallest_side}x{smallest_side}, but this data "
                f"set's samples have shape {sample_shape}. Choose logistic, or another data set."
            )
        return builder(sample_shape, classes)


class LayerSlice(NamedTuple):
    """The entries [start, stop) of the flat vector that one module owns, weight and bias together."""

    name: str
    start: int
    stop: int


class FlatModel:
    """A module on a device whose trainable parameters are views of one vector, their gradients of another.

    The backward pass accumulates in place into `gradient`. Clear it with `zero_grad` of this class (or
    ``gradient.zero_()``), not of the module, which would detach the views.

    Parameters
    ----------
    module
        The model; it is moved to `device` as float32 and owned from then on.
    device
        Where it computes.

    Attributes
    ----------
    module : nn.Module
    parameters, gradient : float32 tensors of shape (size,)
        Trainable parameters in the order of ``module.parameters()``, and their gradient.
    layers : tuple of LayerSlice
        One for each module that owns trainable parameters itself; they tile [0, size).
    size : int
        Number of trainable parameters N.

    Raises
    ------
    ConfigError
        Where the model has no trainable parameters.
    """

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.module = module.to(device=device, dtype=torch.float32)
        self._tensors: list[nn.Parameter] = []
        layers, seen, stop = [], set(), 0
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
        self.layers, self.size = tuple(layers), stop
        self.parameters = torch.cat([tensor.detach().reshape(-1) for tensor in self._tensors])
        self.gradient = torch.zeros_like(self.parameters)
        sizes = [tensor.numel() for tensor in self._tensors]
        for tensor, values in zip(self._tensors, torch.split(self.parameters, sizes), strict=True):
            tensor.data = values.view_as(tensor)
        self._gradients = [
            part.view_as(tensor) for tensor, part in zip(self._tensors, torch.split(self.gradient, sizes), strict=True)
        ]
        self.zero_grad()

    def zero_grad(self) -> None:
        """Set the gradient to zero, and see to it that every parameter's ``.grad`` is its view."""
        self.gradient.zero_()
        for tensor, view in zip(self._tensors, self._gradients, strict=True):
            tensor.grad = view

    def buffers_vector(self) -> NDArray[np.float32]:
        """The floating-point buffers (BatchNorm's running mean and variance), a copy of shape (B,)."""
        buffers = self._buffers()
        if not buffers:
            return np.zeros(0, dtype=np.float32)
        return _as_numpy(torch.cat([buffer.reshape(-1) for buffer in buffers]))

    def set_buffers(self, vector: NDArray[np.float32]) -> None:
        """Set what `buffers_vector` returns. Raises ValueError where the length differs."""
        buffers = self._buffers()
        sizes = [buffer.numel() for buffer in buffers]
        _require_length("buffers", vector, sum(sizes))
        for buffer, values in zip(buffers, torch.split(torch.tensor(vector), sizes), strict=True):
            buffer.copy_(values.view_as(buffer))

    def load(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> None:
        """Take the parameters, shape (N,), and buffers, shape (B,). Raises ValueError where a length differs."""
        _require_length("parameters", parameters, self.size)
        self.set_buffers(buffers)
        self.parameters.copy_(torch.tensor(parameters))

    def export(self) -> NDArray[np.float32]:
        """A copy of the parameters, shape (N,)."""
        return _as_numpy(self.parameters)

    def _buffers(self) -> list[Tensor]:
        return [buffer for buffer in self.module.buffers() if buffer.is_floating_point()]


def evaluate(model: FlatModel, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[float, int, int]:
    """Evaluate a model in eval mode; its mode is restored.

    Returns
    -------
    loss : float
        Mean cross-entropy an example, in nats, summed in float64.
    correct, examples : int
        Examples whose largest output is their label, and examples in all.

    Raises
    ------
    ValueError
        Where `batches` is empty.
    """
    training = model.module.training
    model.module.eval()
    loss, correct, examples = 0.0, 0, 0
    try:
        with torch.no_grad():
            for x, y in batches:
                outputs = model.module(x)
                losses = functional.cross_entropy(outputs, y, reduction="none")
                loss += float(losses.cpu().double().sum())
                correct += int((outputs.argmax(dim=1) == y).sum())
                examples += len(y)
    finally:
        model.module.train(training)
    if examples == 0:
        raise ValueError("There are no examples to evaluate the model on.")
    return loss / examples, correct, examples


def _as_numpy(vector: Tensor) -> NDArray[np.float32]:
    copied: NDArray[np.float32] = vector.to("cpu", copy=True).numpy()
    return copied


def _require_length(what: str, vector: NDArray[np.float32], size: int) -> None:
    if vector.shape != (size,):
        raise ValueError(f"The model's {what} have shape ({size},). Got {vector.shape}.")


def _logistic(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(sample_shape)), classes))


def _cnn(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    channels, height, width = sample_shape
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * (height // 4) * (width // 4), 64), nn.ReLU(), nn.Linear(64, classes)),
    )


def _alexnet(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """AlexNet for 32x32 images; 2,781,514 parameters for 10 classes."""
    channels, height, width = sample_shape
    flat = 256 * ((height + 1) // 16) * ((width + 1) // 16)
    return nn.Sequential(
        *(nn.Conv2d(channels, 64, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 192, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(flat, 512), nn.ReLU(), nn.Linear(512, classes)),
    )


class _Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)  # type: ignore[no-any-return]


def _resnet9(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet9; 6,621,540 parameters for 100 classes."""

    def convolution(inputs: int, outputs: int, *then: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), *then)

    return nn.Sequential(
        convolution(sample_shape[0], 64),
        convolution(64, 128, nn.MaxPool2d(2)),
        _Residual(convolution(128, 128), convolution(128, 128)),
        convolution(128, 256, nn.MaxPool2d(2)),
        convolution(256, 512, nn.MaxPool2d(2)),
        _Residual(convolution(512, 512), convolution(512, 512)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)),
    )


def _resnet18(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 with a 3x3 stride-1 stem and no max-pool; 11,271,432 parameters for 200 classes."""
    from torchvision.models import resnet18

    model: nn.Module = resnet18(num_classes=classes)
    model.conv1 = nn.Conv2d(sample_shape[0], 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


MODELS: dict[str, tuple[Callable[[tuple[int, ...], int], nn.Module], int]] = {
    "logistic": (_logistic, 0),
    "cnn": (_cnn, 4),
    "alexnet": (_alexnet, 15),
    "resnet9": (_resnet9, 8),
    "resnet18": (_resnet18, 1),
}
"""Name -> builder, and the smallest image side it takes (0: samples of any shape)."""
