"""How long a call takes."""

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def fastest(repeats: int, call: Callable[[], Result]) -> tuple[float, Result]:
    """Processor seconds of this thread in the fastest of `repeats` calls, and what the last one returned.

    What waits for nothing takes as long on an idle machine; on a busy one, time spent waiting for a core is no cost.
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
