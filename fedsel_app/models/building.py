"""Building of models: by the name of an architecture, or by a user's function. A user's model and task
are tried on two samples, before the first round.

fedsel's own models for images have kernels, images and gradients in channels-last order, because convolutions on a CPU
are faster with it.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fedsel_app.config import ConfigError, plugins
from fedsel_app.config.settings import plain_value
from fedsel_app.data.arrays import SampleShape
from fedsel_app.data.dataset import Dataset
from fedsel_app.data.inputs import Inputs, mapped, trial_inputs
from fedsel_app.models.device import naming_lack_of_memory, seeded
from fedsel_app.models.flat_model import FlatModel, evaluating, refuse_types
from fedsel_app.models.module_calls import call
from fedsel_app.models.module_state import in_float32, modes_kept
from fedsel_app.models.tasks import Task, refusal
from fedsel_app.records.files import MachineFault
from fedsel_app.seeds import Purpose, torch_seed


def build_flat(
    name: str,
    dataset: Dataset,
    seed: int,
    device: torch.device,
    task: Task,
    *,
    precision: str = "fp32",
    local: tuple[str, ...] = (),
) -> FlatModel:
    """Build the model `name` for a data set, and try it on two inputs; see `build` and `FlatModel`."""
    inputs = trial_inputs(dataset.x_train, dataset.x_test)
    module = build(name, dataset.sample_shape, dataset.classes, seed, inputs, dataset.output_shape)
    return FlatModel(module, device, task, precision, trial=inputs, local=local)


def build(
    name: str,
    sample_shape: SampleShape,
    classes: int,
    seed: int,
    inputs: Inputs | None = None,
    output_shape: tuple[int, ...] = (),
) -> nn.Module:
    """Build a model with torch's default initialisation, the same for the same arguments.

    Meanwhile the global generators of torch, NumPy and Python have states that follow from the seed.

    Raises ConfigError if there is no such model, or if it does not accept such samples.

    Parameters
    ----------
    name : one of ARCHITECTURES, or "package.module:function", called as function(sample_shape, classes)
    sample_shape : shape of one sample: (C, H, W) for images, (C, T) for signals, anything for features; or shapes by
        name
    classes : number of outputs
    seed : seed of the run
    inputs : two inputs that a user's model must accept; None: zeros of that shape
    output_shape : shape of a user's model's outputs for one sample; empty: (classes,)
    """
    with seeded(torch_seed(seed, Purpose.INIT), torch.device("cpu")):
        if ":" in name:
            return _user_model(name, sample_shape, classes, inputs, output_shape or (classes,))
        from fedsel_app.models.architectures import ARCHITECTURES

        if name not in ARCHITECTURES:
            raise plugins.unknown_name("model", name, ARCHITECTURES)
        if isinstance(sample_shape, dict) or (isinstance(inputs, Tensor) and not inputs.is_floating_point()):
            raise ConfigError(
                f"The 'model' parameter {name} needs numbers or images, but this data set's samples are whole numbers "
                "(tokens) or several arrays. Set 'model' to a function of yours, package.module:function."
            )
        needed = ARCHITECTURES[name].misfit(sample_shape)
        if needed:
            raise ConfigError(
                f"The 'model' parameter {name} needs {needed}, but this data set's samples have shape {sample_shape}. "
                "Choose logistic, or another data set."
            )
        model = ARCHITECTURES[name].build(sample_shape, classes)
        if ARCHITECTURES[name].samples == "images":
            channels_last(model)
        return model


def _user_model(
    name: str, sample_shape: SampleShape, classes: int, inputs: Inputs | None, output_shape: tuple[int, ...]
) -> nn.Module:
    """Model that the function `name` ("package.module:function") builds for these samples and outputs.

    Raises ConfigError if the function raises or does not return a module, or if the module does not fit the data.
    """
    model = plugins.call(name, "model", sample_shape, classes)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"The function '{name}' must return a torch.nn.Module. Got {type(model).__name__}.")
    refuse_types(model)
    in_float32(model)
    if inputs is None:
        shapes = sample_shape if isinstance(sample_shape, dict) else {"": sample_shape}
        named = {key: torch.zeros(2, *shape) for key, shape in shapes.items()}
        inputs = named.get("", named)
    _refuse_misfit(model, name, sample_shape, inputs, output_shape)
    return model


def _refuse_misfit(
    model: nn.Module, name: str, sample_shape: SampleShape, inputs: Inputs, output_shape: tuple[int, ...]
) -> None:
    """Raise ConfigError if a user's model raises for two inputs, or returns outputs of another shape for each, and
    MachineFault if the memory does not suffice.
    """
    try:
        with naming_lack_of_memory("The trial of the model"), modes_kept(model), torch.no_grad():
            outputs = call(model.eval(), mapped(torch.clone, inputs))
    except MachineFault:
        raise
    except ConfigError as error:
        raise ConfigError(f"The model '{name}' does not fit. {error}") from error
    except Exception as error:
        raise ConfigError(
            f"The model '{name}' does not accept this data set's samples, which have shape {sample_shape}: "
            f"{plugins.described(error)}. Numbers and weights are float32, and tokens are int64."
        ) from error
    shape = tuple(outputs.shape)
    if shape != (2, *output_shape) and (shape, output_shape) != ((2,), (1,)):
        raise ConfigError(
            f"The model '{name}' returns outputs of shape {shape} for two samples. This data set needs "
            f"{(2, *output_shape)}: {output_shape[-1]} outputs for each."
        )


def channels_last(model: nn.Module) -> nn.Module:
    """Convert a model's kernels, and on a CPU its input images, to channels-last order.

    The values of inputs and outputs do not change. `build` does this only for fedsel's own models for images. A user's
    function may do it for its model, unless that uses `Tensor.view`, which fails for such tensors; `reshape` and
    `nn.Flatten` do not fail.
    """
    model.register_forward_pre_hook(
        lambda _, inputs: tuple(_with_channel_strides(x) if x.is_cpu else x for x in inputs)
    )
    for module in model.modules():
        if isinstance(module, nn.Flatten):
            module.register_forward_pre_hook(_gradient_channels_last)
    return model.to(memory_format=torch.channels_last)


def _with_channel_strides(x: Tensor) -> Tensor:
    """Images (n, C, H, W) in channels-last order. With one channel, only the strides of the two orders differ."""
    if x.shape[1] == 1:
        return x.reshape(-1, *x.shape[2:], 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=torch.channels_last)


def _gradient_channels_last(flatten: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Convert the gradient of the flattened images to channels-last order once; else each earlier layer converts it."""
    for x in inputs:
        if x.is_cpu and x.requires_grad and x.dim() == 4:
            x.register_hook(_with_channel_strides)  # type: ignore[no-untyped-call]


def try_task(path: str, model: FlatModel, x: Inputs, y: Tensor) -> None:
    """Try the model's own task `path` on two examples.

    Raises ConfigError if one of its functions raises, or returns something else than `Task` says.
    """
    task = model.task
    with evaluating(model):
        outputs = model.outputs(x)
    with plugins.user_code(path.partition(":")[0], f"The class '{path}' ('task')"):
        trained = outputs.clone().requires_grad_()
        loss, losses = task.loss(trained, y), task.losses(outputs, y)
        if not isinstance(loss, Tensor) or loss.shape != () or not loss.requires_grad:
            raise refusal(path, f"must return from `loss` a scalar with a gradient for the outputs. Got {loss!r}")
        if not isinstance(losses, Tensor) or losses.shape != (len(y),):
            raise refusal(path, f"must return from `losses` the loss of each example, {(len(y),)}. Got {losses!r}")
        given, mean = float(loss.detach()), float(losses.double().mean())
        if not (math.isfinite(mean) and math.isclose(given, mean, rel_tol=1e-3, abs_tol=1e-6)):
            raise refusal(
                path, f"must return from `loss` the mean of `losses`. For two examples it is {given:g}, not {mean:g}"
            )
        both, *each = (task.tally(outputs[part], y[part]) for part in (slice(2), slice(1), slice(1, 2)))
        if not isinstance(both, np.ndarray) or not np.allclose(both, np.sum(each, axis=0), equal_nan=True):
            raise refusal(path, "must return from `tally` an array of sums, which is the sum of those of two parts")
        scores = task.scores(both, mean, len(y))
        if not isinstance(scores, Mapping) or not all(
            isinstance(name, str) and name.isidentifier() and isinstance(plain_value(value), int | float)
            for name, value in scores.items()
        ):
            raise refusal(path, f"must return from `scores` a dict of numbers by name. Got {scores!r}")
