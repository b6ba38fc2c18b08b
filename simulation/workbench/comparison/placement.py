"""Placement of a comparison's runs: how many run at the same time on this machine, and which GPUs each of them sees."""

import math
import os
from collections.abc import Sequence

import torch

from fedsel_app.wiring.configuration import AppConfig
from simulation.engines.this_process import usable_cores


def default_jobs(configs: Sequence[AppConfig], gpus: int) -> int:
    """Number of runs that fit side by side on this machine's cores, and on its GPUs if clients use a share of one."""
    cores = usable_cores()
    return max(1, min(_room(config, cores, gpus) for config in configs))


def cores_each(jobs: int) -> int:
    """Number of cores for each of `jobs` simultaneous runs."""
    return max(1, usable_cores() // jobs)


def workers_each(config: AppConfig, jobs: int) -> int:
    """Ray workers for each of `jobs` simultaneous runs: `workers`, or else 0 (all cores) if alone, or its part.

    Clients that take a share of a GPU have one worker, because `default_jobs` divides the GPUs among the runs.
    """
    if config.execution.workers or jobs == 1:
        return config.execution.workers
    return 1 if config.execution.client_gpus else cores_each(jobs)


def _room(config: AppConfig, cores: int, gpus: int) -> int:
    room = cores // (config.execution.workers or 1)
    share = _gpu_share(config)
    if gpus == 0 or share == 0:
        return room
    return min(room, gpus * int(1 / share + 1e-9) if share <= 1 else gpus // math.ceil(share))


def visible_gpus(slot: int, config: AppConfig, gpus: int) -> dict[str, str]:
    """Environment that gives a run its own GPUs, if there are several GPUs and several simultaneous runs."""
    if gpus < 2:
        return {}
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = devices.split(",") if devices else [str(index) for index in range(gpus)]
    width = max(1, math.ceil(_gpu_share(config)))
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[(slot * width + offset) % gpus] for offset in range(width))}


def gpu_count() -> int:
    """Number of GPUs that CUDA sees."""
    return torch.cuda.device_count()


def _gpu_share(config: AppConfig) -> float:
    """GPUs that one run takes, as a fraction; 0 if its clients use none."""
    return config.execution.client_gpus * (config.execution.workers or 1)
