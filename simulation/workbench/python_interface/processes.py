"""A run in this process, whose state is restored afterwards: it may be a notebook."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from fedsel_app.records.schema import Row
from fedsel_app.wiring.configuration import AppConfig
from simulation.engines import inline_engine

TURN = threading.RLock()


def simulate_inline(config: AppConfig, on_round: Callable[[Row], None]) -> Path:
    """Simulate a run with the inline engine and return its folder. Ctrl-C raises KeyboardInterrupt.

    Runs in several threads take turns: they share torch's global generator.
    """
    with TURN, _restored():
        try:
            return inline_engine.simulate(config, on_round)
        except SystemExit as ended:
            raise KeyboardInterrupt from ended


@contextmanager
def _restored() -> Iterator[None]:
    """After the block, restore what a run changes in its process: threads, torch's modes."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # the call imports torch's compiler
            torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = benchmark
