"""Processes of a deployment that are killed and started again."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from simulation import processes
from simulation.deployment.flower_cli import RunResult, environment
from simulation.deployment.local_deployment import Deployment

SUPERLINK = 0
"""Place among a deployment's children; SuperNode n has place n + 1."""
KEEPER = [sys.executable, "-P", "-m", "simulation.processes"]


def kill(child: processes.Child) -> None:
    """SIGKILL it and all that it started."""
    while left := processes.running([child]):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def start_again(deployment: Deployment, place: int) -> processes.Child:
    """With the same command line, so with the same address and key."""
    child = deployment._children[place]
    command = child.process.args
    assert isinstance(command, list)
    assert command[: len(KEEPER)] == KEEPER
    log, home = child.log.with_name(f"{child.log.stem}-again.log"), environment(deployment.folder / child.name)
    work = deployment.folder / "work"
    again = processes.start(child.name, child.mark, command[len(KEEPER) :], log, work, home, with_parent=True)
    deployment._children[place] = again
    return again


def await_that(holds: Callable[[], bool], run: "Future[RunResult]") -> None:
    """Wait for it, but not longer than the run goes on."""
    while not holds():
        assert not run.done(), run.result()
        time.sleep(0.02)


def await_text(log: Path, text: str, timeout_s: float = 90.0) -> None:
    """Wait until it is in the log."""
    deadline = time.monotonic() + timeout_s
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"no {text!r} in {log}"
        time.sleep(0.1)


def training(node: processes.Child) -> bool:
    """True if the SuperNode's client is at work: Flower starts a process for every message."""
    return bool(list(running(node, "flwr-clientapp")))


def resident_mb(child: processes.Child, program: str) -> float:
    """Memory of the processes of the family that run `program`; 0 if none does."""
    total = 0
    for pid in running(child, program):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total / 1024


def running(child: processes.Child, program: str) -> Iterator[int]:
    """Process ids of the family's members that run `program`."""
    for pid in processes.running([child]):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if program in {Path(word).name for word in words} and KEEPER[-1] not in words:
                yield pid
