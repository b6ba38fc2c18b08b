"""Cores of this machine, and the workers that a run has on them."""

import os

from fedsel_app.wiring.configuration import AppConfig


def usable_cores() -> int:
    """Number of cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def worker_count(config: AppConfig) -> int:
    """Number of Ray workers of a run: `workers`, or one for each core that this process may use."""
    return config.execution.workers or usable_cores()
