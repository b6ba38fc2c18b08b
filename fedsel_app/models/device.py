"""Device of a process and its precision, and settings of torch that make results repeatable: same seed, same bits."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedsel_app.config import ConfigError
from fedsel_app.records.files import MachineFault
from fedsel_app.seeds import global_generators

GLIBC_THRESHOLDS = {-1: 2**30, -3: 2**25}
"""Options of glibc's mallopt. M_TRIM_THRESHOLD: number of freed bytes that the process keeps. M_MMAP_THRESHOLD, here at
its largest value: size of an allocation that gets pages of its own, which the process does not keep."""


@contextmanager
def naming_lack_of_memory(who: str) -> Iterator[None]:
    """In the block, a lack of memory of the host or the GPU becomes a MachineFault of `who`."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise MachineFault(
            f"{who} has too little memory ({error}). Free memory, lower 'workers', or raise 'client-gpus', "
            "so that fewer workers share a GPU."
        ) from error


def choose_device(name: str) -> torch.device:
    """Choose the device of the 'device' setting; "auto" takes cuda, else mps, else cpu.

    Raises ConfigError if this machine lacks the device asked for.
    """
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in present.items() if there))
    if not present[name]:
        raise ConfigError(f"The 'device' parameter is {name}, which this machine does not have. Set auto or cpu.")
    return torch.device(name)


def prepare(device: torch.device, threads: int) -> None:
    """Set the number of torch's threads, and on a CUDA device deterministic kernels in the precision that is asked for.

    By default torch computes convolutions of float32 in TF32, which keeps 10 of the 23 bits of the mantissa. On a CPU
    torch's kernels are deterministic for a fixed number of threads.
    """
    torch.set_num_threads(threads)
    if device.type == "cpu":
        _keep_freed_memory()
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False


def _keep_freed_memory() -> None:
    """Let the process keep freed memory, if the C library is glibc.

    Each step allocates memory for its activations again. If the system took the pages back in between, each costs a
    page fault. Together these take half of the time of a small convolutional model's forward pass.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        for option, size in GLIBC_THRESHOLDS.items():
            mallopt(option, size)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, from which models draw, and restore them afterwards."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []), global_generators(seed):
        # Not torch.manual_seed: it would seed the other devices as well.
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed(seed)
        yield
