"""This process: the cores that it may use, its imports without garbage collection, and its signals."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NoReturn


def usable_cores() -> int:
    """Number of cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


@contextmanager
def uncollected_imports() -> Iterator[None]:
    """Import in the block without garbage collection. All objects that exist afterwards stay until the process ends.

    Otherwise the collector would scan a million objects again and again, and free them at the end. Together this takes
    a second of a small run. In a process that has imported so before, later objects are collected as ever.
    """
    gc.disable()
    try:
        yield
    finally:
        _freeze_once()
        gc.enable()


_freeze_once = cache(gc.freeze)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer Ctrl-C, SIGTERM and SIGHUP until the end of the block (only the main thread receives them)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: pending.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in pending:
            signal.raise_signal(late)


def exit_with(number: int, _: object) -> NoReturn:
    """Handler of a signal: raise SystemExit with the usual exit code."""
    sys.exit(128 + number)


def interrupted(stop: KeyboardInterrupt | SystemExit) -> int | None:
    """Exit code if Ctrl-C, SIGTERM or SIGHUP is what ended this process; None if it ended by itself."""
    code = 128 + signal.SIGINT if isinstance(stop, KeyboardInterrupt) else stop.code
    signals = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    return code if isinstance(code, int) and code - 128 in signals else None


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit within the block, unless they already have a handler."""
    main = threading.current_thread() is threading.main_thread()
    unhandled = [n for n in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(n) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, exit_with)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)
