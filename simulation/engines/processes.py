"""Child processes (see `simulation.engines.starter`): each is ended together with all of its descendants, its family.

A family is the process's group and, on Linux, its session and all processes with its mark in their environment. So
descendants are found even after they left the group, after they changed their title (Ray's processes do this, and it
overwrites their environment), or after their parent ended.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.1
KILL_GRACE_S = 10.0
"""Seconds that the system gets to end a killed process: on a machine under load it is not at once."""
EMPTY_LOOKS = 5
"""Number of consecutive checks, a tenth of `POLL_S` apart, that must find no member before a family counts as ended."""
MARK = "FEDSEL_PROCESS"
"""Environment variable with the mark of a family."""


@dataclass(frozen=True)
class Child:
    """A started process, leader of its own session."""

    name: str
    pid: int
    command: Sequence[str]
    log: Path
    """File with the output of its family."""
    mark: str
    poll: Callable[[], int | None]
    """Gives its exit code or, as in a shell, 128 + the number of the signal that ended it; None while it runs."""


def kill_families(marks: Mapping[int, str]) -> None:
    """SIGKILL the sessions that are led by the processes of `marks` (process id -> mark), and all processes with such a
    mark, until several consecutive checks find none.

    A process that has left its session but has not started its program yet has neither the session nor the mark.
    """
    marked = {f"{MARK}={mark}".encode() for mark in marks.values()}
    empty = 0
    while marks and empty < EMPTY_LOOKS:
        left = _members(marks.keys(), marked) - {os.getpid()}
        empty = 0 if left else empty + 1
        if left:
            _send(signal.SIGKILL, marks, left)
        for pid in marks:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(POLL_S / 10)


def end(children: Sequence[Child], grace_s: float) -> set[int]:
    """End the families: SIGTERM, then SIGKILL after `grace_s` seconds. Returns the ids of processes that survive."""
    for number, allowed_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_GRACE_S)):
        left = running(children)
        _send(number, [child.pid for child in children if child.pid in left], left)
        deadline_s = time.monotonic() + allowed_s
        while (left := running(children)) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
    return left


def running(children: Iterable[Child]) -> set[int]:
    """Process ids of all members of the families that are still running."""
    children = list(children)
    alive = {child.pid for child in children if child.poll() is None}
    marks = {f"{MARK}={child.mark}".encode() for child in children}
    return alive | _members(alive, marks)


def _members(sessions: Set[int], marks: Set[bytes]) -> set[int]:
    """Living processes, on Linux, that belong to one of these sessions or have one of these marks."""
    members = set()
    for entry in os.listdir("/proc") if sys.platform == "linux" else ():
        with suppress(OSError):
            if entry.isdigit():
                state, _, _, session = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:4]
                if state in "ZX":
                    continue
                if int(session) in sessions or marks & {*Path("/proc", entry, "environ").read_bytes().split(b"\0")}:
                    members.add(int(entry))
    return members


def _send(number: signal.Signals, groups: Iterable[int], pids: Iterable[int]) -> None:
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in set(pids) - set(groups):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
