"""Commands that a user types, in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.operations.guard.transport import free_ports

PROGRAM = str(Path(sys.executable).parent / "fedsel")
SMALL = ["--clients", "3", "--cohort", "2", "--rounds", "5"]


def fedsel(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        env=os.environ | (environment or {}),
        check=False,
    )


@pytest.fixture
def flower_home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A separate FLWR_HOME and ports for `flwr run`'s local SuperLink, which is ended by its pid afterwards.

    The second port is that of the runtime API up to Flower 1.41, and of the SuperLink's HTTP API later.
    """
    control, runtime = free_ports(2)
    yield {
        "FLWR_HOME": str(tmp_path / "flower"),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        "FLWR_LOCAL_RUNTIME_API_PORT": str(runtime),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(runtime),
    }
    found = subprocess.run(
        ["pgrep", "-f", f"flower-superlink.*:{control}"], capture_output=True, text=True, check=False
    )
    for pid in found.stdout.split():
        os.kill(int(pid), signal.SIGTERM)
