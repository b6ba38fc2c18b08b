"""Device of a process, and torch set up on it so that the same seed gives the same bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedsel_app.config import ConfigError


def choose_device(name: str) -> torch.device:
    """Choose the device of the 'device' setting; "auto" takes cuda, else mps, else cpu.

    Raises
    ------
    ConfigError
        If this machine lacks the device asked for.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in present.items() if there))
    if not present[name]:
        raise ConfigError(f"The 'device' parameter is {name}, which this machine does not have. Set auto or cpu.")
    return torch.device(name)


def prepare(device: torch.device, threads: int) -> None:
    """Set this process's torch threads, and on a CUDA device its deterministic kernels.

    The CPU's kernels are deterministic as they are, for one number of threads.
    """
    torch.set_num_threads(threads)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators, which dropout draws from, and put them back afterwards."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        # Not torch.manual_seed: it would seed the other devices as well.
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield
