"""Timing of calls."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def fastest(repeats: int, call: Callable[[], Result]) -> tuple[float, Result]:
    """Processor seconds of this thread in the fastest of `repeats` calls, and the last one's return value.

    Time spent waiting for a core is left out, so a busy machine measures the same as an idle one.
    """
    best, found = _timed(call)
    for _ in range(repeats - 1):
        seconds, found = _timed(call)
        best = min(best, seconds)
    return best, found


def _timed(call: Callable[[], Result]) -> tuple[float, Result]:
    start = time.thread_time()
    found = call()
    return time.thread_time() - start, found
