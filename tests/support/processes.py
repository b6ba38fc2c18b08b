"""Processes of runs and deployments: waits for them, finds them in /proc, kills and restarts them."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import AppConfig
from simulation.engines import processes
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import app_values
from simulation.operations.deployment.flower_cli import SubmittedRun, environment, node_config_text, submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard.transport import FLEET_OVER_GRPC

FLEET_STARTS = "Starting Fleet API (gRPC-rere)" if FLEET_OVER_GRPC else "Starting the SuperLink Fleet HTTP API"
"""Line in the log of a SuperLink that serves the Fleet API."""
SUPERLINK = 0
"""Position of the SuperLink among a deployment's children; SuperNode n has position n + 1."""
looks_in_proc = pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")


def nodes(state: Path) -> list[str]:
    """Node configurations of three SuperNodes; their clients store their state in a folder."""
    return [node_config_text(client, 3, {"state-dir": str(state)}) for client in range(3)]


def carried_out(deployment: Deployment, config: AppConfig, lines: list[str] | None = None) -> SubmittedRun:
    """Outcome of a run of fedsel by the processes of a deployment; `lines` collects its log."""
    log = [] if lines is None else lines
    return submit_to_flower(app_folder(), app_values(config), deployment.flwr_home, log.append)


def kill(child: processes.Child) -> None:
    """Send SIGKILL to a process and to all processes that it started."""
    while left := processes.running([child]):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def start_again(deployment: Deployment, place: int) -> processes.Child:
    """Start a process again with the same command line, so with the same address and key."""
    child = deployment._children[place]
    log, home = child.log.with_name(f"{child.log.stem}-again.log"), environment(deployment.folder / child.name)
    work = deployment.folder / "work"
    again = deployment._starter.start(child.name, child.mark, child.command, log, work, home)
    deployment._children[place] = again
    return again


def until(holds: Callable[[], object], timeout_s: float, log: Path | None = None) -> None:
    """Wait until a condition is true; if it is not in time, the end of the `log` is shown."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, log.read_text(errors="replace")[-3000:] if log else "too late"
        time.sleep(0.02)


def await_that(holds: Callable[[], bool], run: "Future[SubmittedRun]") -> None:
    """Wait until a condition is true, but not longer than the run."""
    while not holds():
        assert not run.done(), run.result()
        time.sleep(0.02)


def await_text(log: Path, text: str, timeout_s: float = 90.0) -> None:
    """Wait until a text is in the log, which may not exist yet."""
    until(lambda: log.exists() and text in log.read_text(errors="replace"), timeout_s, log)


def training(node: processes.Child) -> bool:
    """True if the SuperNode's client is training: it has received a message to train, and has not answered it yet."""
    log = node.log.read_text(errors="replace")
    return log.rfind("Receiving: train") > log.rfind("Sending: ")


def memory_mb(pid: int) -> float:
    """Memory of the process in MiB. Raises OSError or IndexError if it has just ended."""
    return float(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def mentioning(folder: Path) -> list[str]:
    """Command lines of other processes that have `folder` in their command line or environment."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) not in (os.getpid(), os.getppid()):
            try:
                command, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in command + variables:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def running(child: processes.Child, program: str) -> Iterator[int]:
    """Process ids of the family's members that run `program`."""
    for pid in processes.running([child]):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if program in {Path(word).name for word in words}:
                yield pid


def titles() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent, (entry / "cmdline").read_text().replace("\0", " ").strip()
            except OSError:
                continue
    return found
