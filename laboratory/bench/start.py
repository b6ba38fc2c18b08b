"""Bench `start`: time of commands, and of a small run by stage; fresh processes beside bare imports."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from simulation.operations.deployment.flower_cli import DeploymentError

FEDSEL = ("-P", "-m", "simulation.workbench.cli")
BARE_IMPORTS = 'python -c "import torch, flwr.simulation"'
RUN = "fedsel run"
COMMANDS = {
    BARE_IMPORTS: ("-c", "import torch, flwr.simulation"),
    "fedsel --help": (*FEDSEL, "--help"),
    "fedsel methods": (*FEDSEL, "methods"),
    "fedsel settings": (*FEDSEL, "settings"),
    "fedsel run --dry-run": (*FEDSEL, "run", "--dry-run"),
    RUN: (*FEDSEL, "run"),
}
"""Command -> Python's arguments; the defaults are 20 rounds of digits."""
STAGES = ("-P", str(Path(__file__).with_name("start_stages.py")), "run")
INTERPRETER = "start and end of the interpreter"


class Times(NamedTuple):
    """Seconds on the clock, and processor seconds of all threads."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Start:
    """Median times of a command, or of a stage of `fedsel run`, and both in units of the bare imports'."""

    kind: str
    what: str
    wall_s: float
    cpu_s: float
    wall_ratio: float
    cpu_ratio: float


def python_times(arguments: Sequence[str]) -> tuple[Times, str]:
    """Times of a Python process with these arguments in an empty folder, its children included, and its output.

    Raises
    ------
    DeploymentError
        If it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        command, wall_s, before = [sys.executable, *arguments], time.perf_counter(), os.times()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        wall_s, after = time.perf_counter() - wall_s, os.times()
    if done.returncode:
        raise DeploymentError(f"`{' '.join(command)}` failed: {done.stderr[-2000:]}")
    cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
    return Times(wall_s, cpu_s), done.stdout


def stage_times(engine: str) -> dict[str, Times]:
    """Times of the stages of one run in `engine`, in their order; the first is all that the others leave."""
    whole, output = python_times((*STAGES, f"engine={engine}"))
    stages = {name: Times(*times) for name, times in json.loads(output.splitlines()[-1]).items()}
    wall_s, cpu_s = (sum(times) for times in zip(*stages.values(), strict=True))
    return {INTERPRETER: Times(whole.wall_s - wall_s, whole.cpu_s - cpu_s)} | stages


def measure(repeats: int, engine: str, console: Console) -> list[Start]:
    """Measure every command and every stage `repeats` times, in turns, as the speed of a machine drifts."""
    measured: dict[tuple[str, str], list[Times]] = {}
    for _ in range(repeats):
        for what, arguments in COMMANDS.items():
            times = python_times(arguments)[0]
            measured.setdefault(("command", what), []).append(times)
            console.print(f"{what}: {times.wall_s:.2f} s", highlight=False)
        for what, times in stage_times(engine).items():
            measured.setdefault(("stage", what), []).append(times)
    medians = {key: Times(*map(statistics.median, zip(*times, strict=True))) for key, times in measured.items()}
    unit = medians["command", BARE_IMPORTS]
    return [
        Start(*key, *median, median.wall_s / unit.wall_s, median.cpu_s / unit.cpu_s) for key, median in medians.items()
    ]


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print the times of the commands and of the stages of a run, and return the rows of both tables."""
    starts = measure(arguments.repeats, arguments.engine, console)
    for kind, title in (("command", "Commands"), ("stage", f"Stages of `{RUN}`, engine {arguments.engine}")):
        table = Table(title=f"{title}, medians of {arguments.repeats}")
        table.add_column(kind)
        for heading in ("s", "processor s", "of the bare imports"):
            table.add_column(heading, justify="right")
        for start in starts:
            if start.kind == kind:
                table.add_row(start.what, f"{start.wall_s:.2f}", f"{start.cpu_s:.2f}", f"{start.wall_ratio:.2f}")
        console.print(table)
    [imports, whole] = [start for start in starts if start.what in (BARE_IMPORTS, RUN)]
    console.print(
        f"`{RUN}` takes {whole.wall_s:.2f} s, {whole.wall_ratio:.2f} times the {imports.wall_s:.2f} s of "
        f"`{BARE_IMPORTS}`; {whole.cpu_ratio:.2f} times in processor seconds.",
        highlight=False,
        soft_wrap=True,
    )
    return [asdict(start) for start in starts]
