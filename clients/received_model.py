"""The model in a message to a client: checked, then loaded into the one model of the process."""

from collections.abc import Mapping

import numpy as np
import torch
from flwr.common import NDArrays
from numpy.typing import NDArray

from fedsel_app.caches import kept
from fedsel_app.config import DataConfig, SharedSettings, TaskConfig
from fedsel_app.data.dataset import load
from fedsel_app.models.building import build_flat
from fedsel_app.models.device import choose_device, prepare
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.models.tasks import Task, task_of
from fedsel_app.wire.rounded_values import LEVELS, decode_values, section_bytes


def received_model(
    settings: SharedSettings, arrays: NDArrays, *, with_control: bool = False, probed: bool = False, batches: int = 0
) -> FlatModel:
    """Load the received model, to whose statistics `batches` mini-batches contributed, on the device of this process.

    With `with_control` the last array is a control variate. With `probed` the parameters may be rounded (`probe-bits`).

    Raises ValueError if the arrays do not fit the model; see `check_arrays` and `_restored`.
    """
    run, model = settings.run, built_model(settings)
    if probed and arrays and arrays[0].dtype == np.uint8:
        arrays = [_restored(arrays[0], model.size, settings.evaluation.probe_bits), *arrays[1:]]
    buffers = model.buffers_vector().size
    expected = {"parameters": model.size} | ({"buffers": buffers} if buffers else {})
    check_arrays(arrays, expected | ({"control variate": model.size} if with_control else {}), run.model)
    model.task = _shared_task(settings.data, settings.task, run.seed, model.parameters.device)
    model.load(arrays[0], arrays[1] if buffers else np.zeros(0, np.float32), batches)
    return model


def built_model(settings: SharedSettings) -> FlatModel:
    """The model of this process, with the weights and the state of any message.

    Raises ConfigError if this machine lacks the device of the settings.
    """
    run, execution = settings.run, settings.execution
    device = choose_device(execution.device)
    prepare(device, execution.threads)
    local = settings.calibration.local
    return _shared_model(run.model, settings.data, settings.task, run.seed, device, execution.precision, local)


def check_arrays(arrays: NDArrays, expected: Mapping[str, int], model: str) -> None:
    """Raise ValueError unless `arrays` are finite float32 vectors that match `expected`: name -> length."""
    if len(arrays) != len(expected):
        raise ValueError(f"The model '{model}' consists of {' and '.join(expected)}. Got {len(arrays)} arrays.")
    for (name, size), array in zip(expected.items(), arrays, strict=True):
        if array.dtype != np.float32 or array.shape != (size,):
            raise ValueError(
                f"The {name} of the model '{model}' must be float32 ({size},). Got {array.dtype} {array.shape}. "
                "Server and clients must run the same 'model' and 'data'."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"The {name} from the server are not all finite: the global model diverged.")


def _restored(section: NDArray[np.uint8], size: int, bits: int) -> NDArray[np.float32]:
    """The `size` parameters in a section of rounded values. Raises ValueError if it does not have as many of `bits`."""
    if bits not in LEVELS or section.shape != (section_bytes(size, bits),):
        raise ValueError(
            f"{section.size} bytes are not {size} parameters of {bits} bits. Server and clients must run the same "
            "'model', 'data' and 'probe-bits'."
        )
    return decode_values(section.data, size, bits).values()


@kept
def _shared_model(
    name: str,
    data: DataConfig,
    settings: TaskConfig,
    seed: int,
    device: torch.device,
    precision: str,
    local: tuple[str, ...],
) -> FlatModel:
    """The model of a run in this process. Every message loads its own weights and statistics, and sets its task."""
    task = _shared_task(data, settings, seed, device)
    return build_flat(name, load(data, seed), seed, device, task, precision=precision, local=local)


@kept
def _shared_task(data: DataConfig, settings: TaskConfig, seed: int, device: torch.device) -> Task:
    """The task of the whole data set. All messages use it, unless the client's own examples are counted for it."""
    return task_of(load(data, seed), device, settings)
