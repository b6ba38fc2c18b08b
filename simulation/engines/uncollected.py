"""Imports of a command without garbage collection, which would take a second of a small run."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


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


@cache
def _freeze_once() -> None:
    gc.freeze()
