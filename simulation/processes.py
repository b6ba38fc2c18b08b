"""Child processes: each is started and ended together with all of its descendants, its family.

A family is the process's group and, on Linux, its session and all processes with its mark in their environment. So
descendants are found even after they left the group, after they changed their title (Ray's processes do this, and it
overwrites their environment), or after their parent ended.

``python -m simulation.processes COMMAND`` runs the keeper of one family; see `keep`.
"""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

POLL_S = 0.1
EMPTY_LOOKS = 5
"""Number of consecutive checks, a tenth of `POLL_S` apart, that must find no member before a family counts as ended."""
MARK = "FEDSEL_PROCESS"
"""Environment variable with the mark of a family."""


class Process(Protocol):
    """A started process: the part of `subprocess.Popen` that a family needs."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None:
        """Its input, which a keeper watches."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""


@dataclass(frozen=True)
class Child:
    """A started process, leader of its own session, and the file that holds its output."""

    name: str
    process: Process
    log: Path
    mark: str


def start(
    name: str,
    mark: str,
    command: Sequence[str],
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    *,
    with_parent: bool = False,
) -> Child:
    """Start `command` in `folder`. `mark` must be a text that no other family has.

    A family started `with_parent` has a keeper, which kills it when this process ends for any reason.
    """
    keeper = [sys.executable, "-P", "-m", "simulation.processes"] if with_parent else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*keeper, *command],
            stdin=subprocess.PIPE if with_parent else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**environment, MARK: mark},
            start_new_session=True,
        )
    return Child(name, process, log, mark)


def keep(command: Sequence[str]) -> int:
    """Run `command` until it ends or this process's stdin ends, then kill its family.

    The keeper ignores SIGTERM; the family handles it.

    Returns
    -------
    int
        The command's exit code or, as in a shell, 128 + the number of the signal that ended it.
    """
    family = {os.getsid(0)}, {f"{MARK}={os.environ[MARK]}".encode()}
    signal.signal(signal.SIGTERM, lambda *_: None)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while process.poll() is None and not select.select([sys.stdin], [], [], POLL_S)[0]:
        pass
    process.kill()
    _kill_until_gone(lambda: _members(*family) - {os.getpid()}, (), process.poll)
    code = process.wait()
    return 128 - code if code < 0 else code


def kill_families(marks: Mapping[int, str]) -> None:
    """SIGKILL the sessions that are led by the processes of `marks` (process id -> mark), and all processes with such a
    mark.
    """
    marked = {f"{MARK}={mark}".encode() for mark in marks.values()}

    def reap() -> None:
        for pid in marks:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    _kill_until_gone(lambda: _members(marks.keys(), marked) - {os.getpid()}, marks, reap)


def _kill_until_gone(members: Callable[[], set[int]], groups: Iterable[int], reap: Callable[[], object]) -> None:
    """SIGKILL the members and `groups` until several consecutive checks find no process.

    A process that has left its session but has not started its program yet has neither the session nor the mark.
    """
    empty = 0
    while empty < EMPTY_LOOKS:
        left = members()
        empty = 0 if left else empty + 1
        if left:
            _send(signal.SIGKILL, groups, left)
        reap()
        time.sleep(POLL_S / 10)


def end(children: Sequence[Child], grace_s: float) -> set[int]:
    """End the families: SIGTERM, then SIGKILL after `grace_s` seconds. Returns the ids of processes that survive."""
    _signal(signal.SIGTERM, children)
    _wait(children, grace_s)
    kept = [child for child in children if child.process.stdin]
    for child in kept:
        child.process.stdin.close()  # type: ignore[union-attr]
    _wait(kept, grace_s)
    _signal(signal.SIGKILL, children)
    return _wait(children, grace_s)


def running(children: Iterable[Child]) -> set[int]:
    """Process ids of all members of the families that are still running."""
    children = list(children)
    alive = {child.process.pid for child in children if child.process.poll() is None}
    marks = {f"{MARK}={child.mark}".encode() for child in children}
    return alive | _members(alive, marks)


def _members(sessions: Set[int], marks: Set[bytes]) -> set[int]:
    """Living processes, on Linux, that belong to one of these sessions or have one of these marks."""
    found = set()
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():
        with suppress(OSError):
            if entry.isdigit():
                state, _, _, session = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:4]
                if state not in "ZX" and (int(session) in sessions or _has_mark(entry, marks)):
                    found.add(int(entry))
    return found


def _has_mark(process: str, marks: Set[bytes]) -> bool:
    return not marks.isdisjoint(Path("/proc", process, "environ").read_bytes().split(b"\0"))


def _signal(number: signal.Signals, children: Sequence[Child]) -> None:
    left = running(children)
    _send(number, [child.process.pid for child in children if child.process.pid in left], left)


def _send(number: signal.Signals, groups: Iterable[int], pids: Iterable[int]) -> None:
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in set(pids) - set(groups):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _wait(children: Sequence[Child], timeout_s: float) -> set[int]:
    deadline = time.monotonic() + timeout_s
    while (left := running(children)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return left


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


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit within the block, unless they already have a handler."""
    main = threading.current_thread() is threading.main_thread()
    unhandled = [n for n in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(n) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
