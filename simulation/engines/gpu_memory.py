"""Memory of the processes that share a GPU, estimated before a run; docs/gpu.md compares it with an H200."""

import torch

from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import Dataset, load
from fedsel_app.data.inputs import mapped, trial_inputs
from fedsel_app.models.cost import saved_bytes
from fedsel_app.models.device import choose_device
from fedsel_app.models.flat_model import FlatModel
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import make_model

CUDA_BYTES = 7 * 2**27
"""Memory of a GPU that CUDA and its libraries take for each process, with their work space."""
BACKWARD = 2
"""Memory of a mini-batch's backward pass, in units of what its forward pass keeps: the gradients come on top."""
VECTORS = 8
"""Vectors of the model's size in a process that trains: weights, gradients, moments, the start, and copies."""


def refuse_full_gpu(config: AppConfig, workers: int) -> None:
    """Raise ConfigError if the run uses a GPU whose free memory this process and its `workers` exceed."""
    device = choose_device(config.execution.device)
    if device.type == "cuda":
        model, dataset = make_model(config, device), load(config.data, config.run.seed)
        refuse_too_little(config, workers, model, dataset, torch.cuda.mem_get_info()[0])


def refuse_too_little(config: AppConfig, workers: int, model: FlatModel, dataset: Dataset, free_bytes: int) -> None:
    """Raise ConfigError if this process and its `workers` need more than the `free_bytes` of the GPU that they share.

    Each process keeps the data set, a few vectors of the model's size, and what one mini-batch needs.
    """
    batch, share = config.training.batch_size, config.execution.client_gpus
    processes = 1 + (min(workers, int(1 / share + 1e-9)) if 0.0 < share <= 1.0 else workers)
    inputs = mapped(lambda x: x.to(model.parameters.device), trial_inputs(dataset.x_train, dataset.x_test))
    data = sum(array.nbytes for array in (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test))
    vectors, step = VECTORS * 4 * model.size, BACKWARD * batch * saved_bytes(model.module, inputs)
    process_bytes = CUDA_BYTES + data + vectors + step
    if processes * process_bytes > free_bytes:
        raise ConfigError(
            f"Lower 'workers' or 'batch-size', raise 'client-gpus', or set 'device' to cpu: {processes} processes on "
            f"one GPU need about {process_bytes / 2**30:,.1f} GiB each, and it has {free_bytes / 2**30:,.1f} GiB free."
        )
