"""Cores of this machine."""

import os


def usable_cores() -> int:
    """Number of cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1
