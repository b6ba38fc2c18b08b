"""Caches of a process: what a run has read and built is kept for this run alone, and unchanged files for later runs.

A process that serves one run, such as a command or a worker, is one run. A notebook, and the process of a deployed
client, carry out several (`of_a_run`).
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from fedsel_app.config.plugins import note_changed

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Caches = dict[Callable[..., Any], Callable[..., Any]]
"""Function -> the same function with a cache."""
RESULTS = 2
"""Results of a function that are kept, and runs whose results are kept."""

_across_runs: Caches = {}
_numbered: dict[Hashable, Caches] = {}
_of_run: ContextVar[Caches | None] = ContextVar("caches of the run", default=None)
_of_process: Caches = {}


@contextmanager
def of_a_run(number: Hashable = None) -> Iterator[None]:
    """Keep what the block reads and builds apart from other runs, and load modules of users that were edited again.

    A run with a `number` finds again what it has kept before; one without a number begins anew.
    """
    if number is None or number not in _numbered:
        note_changed()
    caches: Caches = {} if number is None else _numbered.setdefault(number, {})
    for old in list(_numbered)[:-RESULTS]:
        del _numbered[old]
    before = _of_run.set(caches)
    try:
        yield
    finally:
        _of_run.reset(before)


def kept(function: Callable[Arguments, Result], results: int = RESULTS) -> Callable[Arguments, Result]:
    """Decorate a function whose last `results` are kept for the run; its arguments must be hashable."""

    @wraps(function)
    def cached(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        caches = _of_run.get()
        result: Result = _with_cache(function, _of_process if caches is None else caches, results)(*arguments, **named)
        return result

    return cached


def kept_across_runs(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function whose last results are kept for all runs: its arguments say everything that may change."""

    @wraps(function)
    def cached(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        result: Result = _with_cache(function, _across_runs, RESULTS)(*arguments, **named)
        return result

    return cached


def forget() -> None:
    """Forget everything that this process keeps."""
    for caches in (_across_runs, _numbered, _of_process, _of_run.get() or {}):
        caches.clear()


def _with_cache(function: Callable[..., Any], caches: Caches, results: int) -> Callable[..., Any]:
    if function not in caches:
        caches[function] = lru_cache(maxsize=results)(function)
    return caches[function]
