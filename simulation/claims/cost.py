"""Cost of a run that was not measured: seconds that the clients' work is expected to take on one core."""

from functools import lru_cache

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from fedsel_app.data.sources.published import expected_shape
from fedsel_app.models import flat_model
from fedsel_app.models.cost import forward_flops
from fedsel_app.models.device import choose_device
from simulation.experiments.configuration import AppConfig

STEP_S = 4e-4
"""Seconds that a local step takes beside the model's arithmetic."""
FLOPS_PER_S = {"cpu": 5e10, "cuda": 5e12, "mps": 1e12}
"""Floating-point operations per second, of one core or of one GPU that small kernels leave half idle."""
TRAINING_PASSES = 3
"""Forward passes that cost as much as one forward and backward pass."""


def expected_s(config: AppConfig) -> float:
    """Seconds that the training and the loss probes of a run are expected to take.

    Raises
    ------
    ConfigError
        If the data are absent and their size is not known.
    """
    run, training = config.run, config.training
    sample_shape, classes, examples = _data_size(config.data, run.seed)
    flops = _forward_flops(run.model, sample_shape, classes)
    forward_s = training.batch_size * flops / FLOPS_PER_S[choose_device(config.execution.device).type]
    batches = -(-examples // (run.clients * training.batch_size))
    steps = training.local_steps or training.local_epochs * batches
    probes = run.clients if config.strategy.needs(config.method).loss_probe else 0
    training_s = run.cohort * steps * (STEP_S + TRAINING_PASSES * forward_s)
    probes_s = probes * (STEP_S + (config.evaluation.probe_batches or batches) * forward_s)
    return run.rounds * config.strategy.most_iterations(config.method) * (training_s + probes_s)


@lru_cache(maxsize=64)
def _data_size(data: DataConfig, seed: int) -> tuple[tuple[int, ...], int, int]:
    """Shape of a sample, classes and training examples: of the data set, or as published if it is absent."""
    try:
        dataset = load(data, seed)
    except ConfigError:
        if (expected := expected_shape(data)) is None:
            raise
        return expected
    return dataset.sample_shape, dataset.classes, len(dataset.y_train)


@lru_cache(maxsize=16)
def _forward_flops(model: str, sample_shape: tuple[int, ...], classes: int) -> int:
    return forward_flops(flat_model.build(model, sample_shape, classes, 0), sample_shape)
