"""Bench `deploy`: wall and processor time of a deployed round, beside the processor time of its work.

A SuperLink and its SuperNodes run as processes on this machine, with TLS and keys; in each round every client trains a
logistic regression on the digits. The work alone is measured by the same run with the inline engine: clients and server
in one process, without messages, and with the same bits. The first round of each run includes imports and loading, so
it is reported separately.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.run_folder import read_rounds
from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import app_values, client_nodes, with_absolute_paths
from simulation.operations.deployment.flower_cli import DeploymentError, submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment

POLL_S = 0.02
PARTS = {
    "SuperLink": "simulation.operations.guard.superlink",
    "ServerApp": "flwr-serverapp",
    "SuperNodes": "simulation.operations.guard.supernode_process",
    "app processes": "app_process.py",
}
"""Part of a deployment -> a word of its processes' command lines."""
OTHERS = "others"
Times = Mapping[int, tuple[str, float]]
"""Process id -> its part, and its processor time so far in seconds."""


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print the times of a deployed round, and return the rows of the table."""
    if sys.platform != "linux":
        raise ConfigError("python -m laboratory bench deploy reads processor times in /proc, which only Linux has.")
    rows = [measure(size, arguments.supernodes, arguments.rounds, console) for size in arguments.local_steps]
    title = f"A deployed round with {arguments.supernodes} SuperNodes, median of {arguments.rounds}"
    table = Table(title=title, caption="processor time: mean of the same rounds; ratio: all of it over the work's")
    for heading in ("local steps", "first s", "median s", "slowest s", "processor s", "work alone s", "ratio", *PARTS):
        table.add_column(heading, justify="right")
    for row in rows:
        walls = (f"{row[name]:.2f}" for name in ("first_s", "median_s", "slowest_s"))
        cpu = (f"{row[name]:.3f}" for name in ("cpu_s", "work_cpu_s"))
        parts = (f"{row['parts_cpu_s'][part]:.3f}" for part in PARTS)
        table.add_row(str(row["local_steps"]), *walls, *cpu, f"{row['ratio']:.2f}", *parts)
    console.print(table)
    return rows


def measure(local_steps: int, supernodes: int, rounds: int, console: Console) -> dict[str, Any]:
    """Measure `rounds` rounds after the first, deployed and in one process.

    Returns
    -------
    dict
        Row of the table. `first_s`, `median_s` and `slowest_s` are wall seconds of the first round, and of the others.
        `cpu_s` are processor seconds of a later round, summed over all processes of the deployment, `work_cpu_s` those
        in one process, and `parts_cpu_s` those of each of `PARTS`.
    """
    settings: dict[str, Value] = {"strategy": "random", "clients": supernodes, "cohort": supernodes}
    settings |= {"rounds": 1 + rounds, "local-steps": local_steps, "model": "logistic", "links": "simulated"}
    with tempfile.TemporaryDirectory(prefix="fedsel-bench-") as folder:
        console.print(f"{local_steps} local steps: in one process, then deployed", highlight=False)
        work_cpu_s = _work(settings | {"out": f"{folder}/inline"}, rounds)
        walls_s, parts_cpu_s = _deployed(settings | {"out": f"{folder}/run"}, Path(folder), rounds)
    cpu_s = sum(parts_cpu_s.values())
    return {
        "local_steps": local_steps,
        "rounds": rounds,
        "first_s": walls_s[0],
        "median_s": statistics.median(walls_s[1:]),
        "slowest_s": max(walls_s[1:]),
        "cpu_s": cpu_s,
        "work_cpu_s": work_cpu_s,
        "ratio": cpu_s / work_cpu_s,
        "parts_cpu_s": parts_cpu_s,
    }


def _work(settings: dict[str, Value], rounds: int) -> float:
    """Processor seconds of a round after the first, through the inline engine in this process."""
    taken_s: list[float] = []
    inline_engine.simulate(resolve(settings), lambda _: taken_s.append(time.process_time()))
    return (taken_s[-1] - taken_s[0]) / rounds


def _deployed(settings: dict[str, Value], folder: Path, rounds: int) -> tuple[list[float], dict[str, float]]:
    """Wall seconds of each round, and processor seconds of a later round by part."""
    out = Path(str(settings["out"]))
    config = with_absolute_paths(resolve(settings))
    nodes = client_nodes(config, folder / "state")
    began: Times = {}
    latest: dict[int, tuple[str, float]] = {}
    with ThreadPoolExecutor(1) as pool, Deployment(folder / "processes", nodes) as deployment:
        done = pool.submit(submit_to_flower, app_folder(), app_values(config), deployment.flwr_home, lambda _: None)
        first = seen = 0
        while seen <= rounds and not done.done():
            time.sleep(POLL_S)
            if (count := _written(out)) > seen:
                latest |= processor_times(deployment.running())
                began = began or dict(latest)
                first, seen = first or count, count
        result = done.result()
    if not result.completed:
        raise DeploymentError(result.sentence)
    if seen == first:
        raise DeploymentError("The run ended within one look at its processes. Give more --rounds or --local-steps.")
    parts = dict.fromkeys((*PARTS, OTHERS), 0.0)
    for process, (part, seconds) in latest.items():
        parts[part] += (seconds - began.get(process, (part, 0.0))[1]) / (seen - first)
    return [row["wall_s"] for row in read_rounds(out)], parts


def processor_times(processes: set[int]) -> Times:
    """Read the processor times of `processes` in /proc, without those that have ended."""
    found = {}
    for process in processes:
        with suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            found[process] = (_part_of(process), ticks / os.sysconf("SC_CLK_TCK"))
    return found


def _part_of(process: int) -> str:
    words = Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    names = {Path(word).name for word in words}
    parts = [part for part, word in PARTS.items() if word in names]
    return parts[0] if parts else OTHERS


def _written(folder: Path) -> int:
    try:
        return (folder / "rounds.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0
