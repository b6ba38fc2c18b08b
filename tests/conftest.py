"""Process-wide set-up of the tests: threads, signals, garbage collection, hypothesis profiles."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from tests.support.flower_state import task_identity

__all__ = ["task_identity"]

# Small tensors gain nothing from more threads, and tests may run side by side. Read when torch and BLAS are imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in the Makefile: the first process to import keeps the bytecode
os.environ.pop("COLUMNS", None)  # tables have the width that they have in a file
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / ".pytest_cache" / "xdg")  # not the user's
os.fsync = lambda descriptor: None  # no test cuts the power, and so none waits for the disk
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, and more of them in `make test-slow`.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=500)
settings.load_profile("quick")


# What is imported stays until the end: the garbage collector need not go through it again and again.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest folders first: no worker then begins a long file when the others are about to end."""
    longest = {"runs": 0, "strategies": 1, "attacks": 2, "bits": 3}
    items.sort(key=lambda item: min(longest.get(part, len(longest)) for part in item.path.parts))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits for its clients without losing time: only its sleep advances its clock."""
    from strategies.round import clients

    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(clients, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report has blank figures."""
    from tests.support.pictures import draw_blank_pictures

    draw_blank_pictures(monkeypatch)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """`fedsel start` in the process of a test sets a umask, which the next test must not have."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
