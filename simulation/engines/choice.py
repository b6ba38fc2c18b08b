"""Choice of the engine: this process or Ray, from the settings and the size of the work, before anything starts.

The setting `auto` takes the inline engine where one core is expected to have done the clients' work no later than Ray's
workers, by the estimate of `estimate`; it takes Ray for what only Ray can do, and where `workers` is set.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import torch

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
"""Floating-point operations a second, of one core or of one GPU that small kernels leave half idle."""
TRAINING_PASSES = 3
"""Forward passes that cost as much as one forward and backward pass."""
RAY_START_S = 12.0
"""Seconds until Ray's workers have started and imported everything."""
RAY_MESSAGE_S = 0.01
"""Seconds of the server's core for each message through Flower and Ray; to enrol there is one for each client."""
RAY_CLIENT_S = 0.003
"""Seconds that each client of a cohort takes beside its work; a message to train is to several."""


@dataclass(frozen=True)
class Choice:
    """Engine of a run, "inline" or "ray", and the reason for it, a part of a sentence."""

    engine: str
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}, as {self.reason}"

    @property
    def simulate(self) -> Callable[..., Path]:
        """The engine's function `simulate`."""
        found: Callable[..., Path] = import_module(f"simulation.engines.{self.engine}_engine").simulate
        return found


@dataclass(frozen=True)
class Estimate:
    """Seconds that the clients' work of a run is expected to take."""

    inline_s: float
    """In this process, on one core."""
    ray_s: float
    """Through Ray, its start included."""


def usable_cores() -> int:
    """Number of cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def worker_count(config: AppConfig) -> int:
    """Number of Ray workers of a run: `workers`, or one for each core that this process may use."""
    return config.execution.workers or usable_cores()


def choose(config: AppConfig, cores: int | None = None) -> Choice:
    """Choose the engine of a run that has `cores` cores to itself, or all that this process may use.

    Raises
    ------
    ConfigError
        If the setting names the inline engine, and the links are to be measured.
    """
    execution, measured = config.execution, config.network.links == "measured"
    if execution.engine == "inline" and measured:
        raise ConfigError(
            "The 'engine' inline lets clients answer one after the other, so nothing can be measured of their links: "
            "set 'links' to simulated, or 'engine' to ray."
        )
    if execution.engine != "auto":
        return Choice(execution.engine, "'engine' says so")
    if execution.ray_address:
        return Choice("ray", "'ray-address' names a cluster")
    if execution.workers:
        return Choice("ray", "'workers' is set")
    if measured:
        return Choice("ray", "'links' is measured")
    if execution.client_gpus:
        return Choice("ray", "'client-gpus' is set")
    if choose_device(execution.device).type == "cuda" and (gpus := torch.cuda.device_count()) > 1:
        return Choice("ray", f"there are {gpus} GPUs")
    workers = cores or usable_cores()
    expected = estimate(config, workers)
    engine = "inline" if expected.inline_s <= expected.ray_s else "ray"
    return Choice(
        engine,
        f"the clients' work would take about {expected.inline_s:.1f} s on one core, and {expected.ray_s:.1f} s through "
        f"Ray with {workers} workers",
    )


def estimate(config: AppConfig, workers: int) -> Estimate:
    """Estimate how long the clients' training and loss probes take in either engine.

    A local step takes `STEP_S` and its arithmetic; Ray divides the work by its `workers`, and takes `RAY_START_S` once,
    `RAY_MESSAGE_S` for each client and `RAY_CLIENT_S` for each that trains.
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
    rounds = run.rounds * config.strategy.most_iterations(config.method)
    inline_s = rounds * (training_s + probes_s)
    messages_s = run.clients * RAY_MESSAGE_S + rounds * run.cohort * RAY_CLIENT_S
    return Estimate(inline_s, RAY_START_S + inline_s / workers + messages_s)


@lru_cache(maxsize=64)
def _data_size(data: DataConfig, seed: int) -> tuple[tuple[int, ...], int, int]:
    """Shape of a sample, classes and training examples: of the data set, or where it is absent as it is published."""
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
