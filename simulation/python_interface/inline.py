"""Run in this process, which it leaves as it was: torch's and the linear algebra's threads, and Flower's log."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from fedsel_app.records.schema import Row
from simulation.engines import inline_engine
from simulation.experiments.configuration import AppConfig


def simulate_inline(config: AppConfig, on_round: Callable[[Row], None]) -> Path:
    """Simulate a run on the inline engine; its folder. Ctrl-C raises KeyboardInterrupt, as in any other function."""
    with _restored():
        try:
            return inline_engine.simulate(config, on_round)
        except SystemExit as ended:
            raise KeyboardInterrupt from ended


@contextmanager
def _restored() -> Iterator[None]:
    """Restore after the block what a run sets for its whole process."""
    flower, threads = logging.getLogger("flwr"), torch.get_num_threads()
    level, deterministic = flower.level, torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        flower.setLevel(level)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = benchmark
