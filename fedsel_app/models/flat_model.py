"""Flat model: a module with its parameters in one flat vector and its gradient in another, and its evaluation."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _NormBase

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import described
from fedsel_app.config.server import NORMS, STATISTICS
from fedsel_app.data.inputs import Inputs, mapped
from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.models.module_calls import ModuleTrial, call, tried
from fedsel_app.models.module_state import ModuleState, Place, in_float32, modes_kept
from fedsel_app.models.tasks import CLASSIFICATION, Task

NORMALISING = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
"""Normalisation layers, which the word `NORMS` names."""


class FlatModel:
    """A module whose trainable parameters are views of one vector. `backward` writes the gradient to another vector.

    Raises ConfigError if the model has no trainable parameters, or some that are not trained in float32, or does not
    train. Raises it if no array, or every trainable one, stays with the clients although `local` names some.

    Parameters
    ----------
    module : the model. The FlatModel moves it to `device` as float32; other code must not change it after that.
    device : device of the computation
    task : the training loss and the scores
    precision : "bf16" runs the module under torch's autocast; weights, outputs and losses are still float32
    trial : two inputs on which the module is tried (`module_calls.tried`); None: it has no buffers that change, except
        statistics, and needs no copies of its inputs
    local : patterns of the layers and arrays that stay with each client (`CalibrationConfig.local`). The server has
        them as they were built.

    Attributes
    ----------
    module : nn.Module
    task : Task
    state : ModuleState, the module's buffers
    least_batch : int, number of examples that a mini-batch must have in training
    parameters, gradient : float32 tensors of shape (size + L,): the trainable parameters in the order of
        ``module.parameters()``, the L local ones last, and their gradient. The entries of a channels-last kernel are in
        its memory order; `load`, `export` and `arranged` convert from and to row-major order.
    tensors : list of nn.Parameter, the shared parameters, of which the first `size` entries consist
    layers : tuple of LayerSlice, one for each module that has shared parameters of its own; they tile [0, size)
    size : int, number of shared trainable parameters N
    lacking : tuple of str, names of the arrays that stay with each client
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        task: Task = CLASSIFICATION,
        precision: str = "fp32",
        *,
        trial: Inputs | None = None,
        local: tuple[str, ...] = (),
    ) -> None:
        refuse_types(module)
        self.task = task
        self.module = in_float32(module.to(device))
        if device.type != "cpu":
            self.module.to(memory_format=torch.contiguous_format)
        self._bf16 = precision == "bf16"
        self._tensors: list[nn.Parameter] = []
        layers, local_places = [], dict[Place, str]()
        seen = set()
        stop = 0
        for name, owner in self.module.named_modules():
            start = stop
            for key, tensor in owner.named_parameters(recurse=False):
                if not tensor.requires_grad or tensor in seen:
                    continue
                if local and stays(local, f"{name}.{key}".lstrip("."), owner):
                    local_places[Place(owner, key)] = f"{name}.{key}".lstrip(".")
                    continue
                seen.add(tensor)
                self._tensors.append(tensor)
                stop += tensor.numel()
            if stop > start:
                layers.append(LayerSlice(name, start, stop))
        own = {place: name for place, name in local_places.items() if place.tensor not in seen}
        if not layers and not own:
            raise ConfigError("The 'model' parameter names a model without trainable parameters. Choose another.")
        self.layers, self.size, self.tensors = tuple(layers), stop, list(self._tensors)
        for tensor in {id(place.tensor): cast(nn.Parameter, place.tensor) for place in own}.values():
            self._tensors.append(tensor)
            stop += tensor.numel()
        self._sizes = [tensor.numel() for tensor in self._tensors]
        self.parameters = torch.empty(stop, dtype=torch.float32, device=device)
        self.gradient = torch.zeros_like(self.parameters)
        self._gradients = self._views(self.gradient)
        for tensor, view in zip(self._tensors, self._views(self.parameters), strict=True):
            tensor.data = view.copy_(tensor.detach())
        for each in self.module.modules():
            if isinstance(each, nn.Embedding | nn.EmbeddingBag):
                each.sparse = False
        outcome = ModuleTrial()
        if trial is not None:
            outcome = tried(self.module, ModuleState(self.module).train, mapped(lambda x: x.to(device), trial))
        self._copies_inputs, self.least_batch = outcome.writes_input, outcome.least_batch
        stays_here = partial(stays, local)
        self.state = ModuleState(self.module, outcome.changing, outcome.attributes, stays=stays_here)
        self._local = {name: (place, place.copy()) for place, name in {**own, **self.state.local}.items()}
        self.lacking = tuple(self._local)
        at_home = [(name, place.owner) for name, (place, _) in self._local.items()]
        if not self.tensors or any(not any(stays((pattern,), *each) for each in at_home) for pattern in local):
            names = [name for name, tensor in self.module.state_dict().items() if isinstance(tensor, Tensor)]
            raise ConfigError(
                f"Let each name or pattern in 'local-layers' name arrays of the model that training changes, and not "
                f"all: {', '.join(names)}. With 'calibration-form' local, the model needs statistics."
            )

    def backward(self, x: Inputs, y: Tensor) -> Tensor:
        """Write the gradient of a mini-batch's mean loss to `gradient`, and return that loss, a scalar."""
        loss, gradients = self._gradients_of(x, y)
        torch._foreach_copy_(self._gradients, gradients)
        return loss

    def descend(self, x: Inputs, y: Tensor, lr: float) -> Tensor:
        """Add -`lr` times the gradient of a mini-batch's mean loss to `parameters`, and return that loss.

        `gradient` does not change.
        """
        loss, gradients = self._gradients_of(x, y)
        with torch.no_grad():
            torch._foreach_add_(tuple(self._tensors), gradients, alpha=-lr)
        return loss

    def _gradients_of(self, x: Inputs, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        loss = self.task.loss(self.outputs(x), y)
        gradients = torch.autograd.grad(loss, self._tensors, materialize_grads=True)
        return loss.detach(), dense(gradients)

    def outputs(self, x: Inputs) -> Tensor:
        """Outputs of the module in its precision, as float32."""
        if not self._bf16:
            return self.full_outputs(x)
        with self.autocast():
            return self.full_outputs(x).float()

    def full_outputs(self, x: Inputs) -> Tensor:
        """Outputs of the module, without autocast."""
        return call(self.module, mapped(torch.clone, x) if self._copies_inputs else x)

    def autocast(self) -> torch.autocast:
        """Context in which the module runs in its precision. Within one context, weights are converted only once."""
        return torch.autocast(self.parameters.device.type, torch.bfloat16, enabled=self._bf16)

    def refuse_curvature(self, x: Inputs) -> None:
        """Raise ConfigError if the outputs for `x` have no second derivative."""
        try:
            with modes_kept(self.module), sdpa_kernel(SDPBackend.MATH):
                self.module.eval()
                gradients = torch.autograd.grad(
                    self.full_outputs(x).square().sum(), self._tensors, create_graph=True, materialize_grads=True
                )
                total = torch.stack([gradient.square().sum() for gradient in dense(gradients)]).sum()
                if total.requires_grad:
                    torch.autograd.grad(total, self._tensors, materialize_grads=True)
        except RuntimeError as error:
            raise ConfigError(
                "Set 'curvature-layers' to 0: in eval mode, the model has an operation without a second derivative, or "
                f"does not use its trained weights, so that no curvature can be computed ({described(error)})."
            ) from error

    def losses(self, x: Inputs, y: Tensor) -> Tensor:
        """Loss of each example, float32 (n,)."""
        return self.task.losses(self.outputs(x), y)

    def buffers_vector(self) -> NDArray[np.float32]:
        """The buffers that travel, a copy of shape (B,): statistics, then changing buffers (see `module_state`)."""
        return self.state.vector()

    def load(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32], batches: int = 0) -> None:
        """Load the parameters, shape (N,), and buffers, shape (B,), to which `batches` mini-batches contributed.

        Everything else in the module is as it was built. Raises ValueError if a length differs.
        """
        if parameters.shape != (self.size,):
            raise ValueError(f"The model's parameters have shape ({self.size},). Got {parameters.shape}.")
        self.state.set(buffers, batches)
        self._fill(self.parameters, parameters)
        self.load_local({})

    def load_local(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Load arrays that stay with a client, by name; those that are missing are as they were built.

        Raises ValueError if one has another shape or type.
        """
        for name, (place, built) in self._local.items():
            value = built
            if built is not None and name in arrays:
                value = torch.from_numpy(arrays[name].copy()).to(built.device)
                if (value.shape, value.dtype) != (built.shape, built.dtype):
                    raise ValueError(f"The client's own '{name}' is {value.dtype} {tuple(value.shape)}.")
            place.put(value)

    def export_local(self) -> dict[str, NDArray[Any]]:
        """Copies of the arrays that stay with a client, by name."""
        return {
            name: place.tensor.detach().cpu().contiguous().numpy().copy()
            for name, (place, _) in self._local.items()
            if place.tensor is not None
        }

    def arranged(self, vector: NDArray[np.float32]) -> Tensor:
        """Copy a vector in row-major order, shape (N,), to the order and the device of `parameters`."""
        arranged = torch.zeros_like(self.parameters)
        self._fill(arranged, vector)
        return arranged

    def export(self) -> NDArray[np.float32]:
        """A copy of the parameters in row-major order, shape (N,)."""
        vector: NDArray[np.float32] = torch.cat([tensor.detach().reshape(-1) for tensor in self.tensors]).cpu().numpy()
        return vector

    def _fill(self, target: Tensor, vector: NDArray[np.float32]) -> None:
        """Copy `vector` (N,), in row-major order, into `target`, in the order of `parameters`."""
        shared = len(self.tensors)
        parts = np.split(vector, np.cumsum(self._sizes[:shared])[:-1])
        for view, part in zip(self._views(target)[:shared], parts, strict=True):
            if view.is_cpu:  # NumPy also copies from read-only arrays, which torch does not accept
                np.copyto(view.numpy(), part.reshape(view.shape))
            else:
                view.copy_(torch.tensor(part).view(view.shape))

    def _views(self, vector: Tensor) -> list[Tensor]:
        """Parts of a vector in the order of `parameters`, with the shapes and strides of the module's tensors."""
        parts = torch.split(vector, self._sizes)
        return [_view_like(tensor, part) for tensor, part in zip(self._tensors, parts, strict=True)]


def stays(local: tuple[str, ...], name: str, owner: nn.Module) -> bool:
    """True if the array `name` of the module `owner` stays with each client.

    A pattern names an array, or a module with all its arrays.
    """
    parts = name.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    whole = any(fnmatchcase(each, pattern) for each in names for pattern in local if pattern not in (NORMS, STATISTICS))
    counted = STATISTICS in local and isinstance(owner, _NormBase) and name.split(".")[-1] in owner._buffers
    return whole or counted or (NORMS in local and isinstance(owner, NORMALISING))


def dense(gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradients, as dense tensors: those of an embedding may be sparse."""
    return tuple(gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients)


@dataclass(frozen=True)
class Result:
    """Evaluation of a model: mean loss, number of examples, and the scores that are defined, by name (see `tasks`)."""

    loss: float
    examples: int
    scores: Mapping[str, float]


Further = Callable[[Tensor, Tensor], Mapping[str, float]]
"""Further scores by name, from the outputs and the targets of all examples, on the CPU."""


def further_scores(metrics: tuple[str, ...], task: str) -> Further | None:
    """Function that computes `metrics` of torchmetrics for a data set of this task; None if there are none."""
    if not metrics:
        return None
    from fedsel_app.models.metrics import measured

    return partial(measured, metrics, task)


def evaluate(model: FlatModel, batches: Iterable[tuple[Inputs, Tensor]], further: Further | None = None) -> Result:
    """Evaluate a model in eval mode, and restore its mode. The loss is summed in float64.

    All outputs are kept if `further` scores need them.

    Raises ValueError if `batches` is empty.
    """
    loss = 0.0
    tally = np.zeros(1)
    examples = 0
    kept: list[tuple[Tensor, Tensor]] = []
    with evaluating(model):
        for x, y in batches:
            outputs = model.outputs(x)
            loss += _sum(model.task.losses(outputs, y))
            tally = tally + model.task.tally(outputs, y)
            examples += len(y)
            if further is not None:
                kept.append((outputs.cpu(), y.cpu()))
    if examples == 0:
        raise ValueError("There are no examples to evaluate the model on.")
    scores = dict(model.task.scores(tally, loss / examples, examples))
    if further is not None:
        scores |= further(*map(torch.cat, zip(*kept, strict=True)))
    finite = {name: float(value) for name, value in scores.items() if math.isfinite(value)}
    return Result(loss / examples, examples, finite)


def batch_losses(model: FlatModel, batches: Iterable[tuple[Inputs, Tensor]]) -> list[tuple[float, int]]:
    """Loss of each mini-batch in eval mode, summed over its examples in float64, and the number of its examples."""
    with evaluating(model):
        return [(_sum(model.losses(x, y)), len(y)) for x, y in batches]


@contextmanager
def evaluating(model: FlatModel) -> Iterator[None]:
    """Run the block, which does not change the weights, in eval mode and without gradients, and restore the modes."""
    with modes_kept(model.module), torch.no_grad(), model.autocast():
        model.module.eval()
        yield


def _sum(losses: Tensor) -> float:
    return float(losses.cpu().double().sum())


def _view_like(tensor: Tensor, values: Tensor) -> Tensor:
    """View of `values` (n,) with the shape of `tensor`, channels-last if `tensor` is."""
    if tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous():
        outputs, inputs, height, width = tensor.shape
        return values.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return values.view(tensor.shape)


def refuse_types(module: nn.Module) -> None:
    """Raise ConfigError if the module has parameters of half precision or trainable ones that are complex.

    Also if it is a script, or has buffers that are sparse.
    """
    if any(isinstance(each, torch.jit.ScriptModule) for each in module.modules()):
        raise ConfigError("Let the function of the model return the module without torch.jit: fedsel adds hooks to it.")
    for name, buffer in module.named_buffers():
        if buffer.layout != torch.strided:
            raise ConfigError(
                f"Let the function of the model make the buffer '{name}' dense (to_dense()): it is {buffer.layout}, "
                "which cannot be compared or sent."
            )
    for name, parameter in module.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16):
            raise ConfigError(
                f"Let the function of the model return model.float(): its parameter '{name}' is {parameter.dtype}, and "
                "fedsel trains in float32. For half precision on a processor that has it, set precision=bf16."
            )
        if parameter.is_complex() and parameter.requires_grad:
            raise ConfigError(f"The model's parameter '{name}' is complex. Train its real and imaginary part instead.")
