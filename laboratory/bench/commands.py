"""`python -m laboratory bench`: measures the parts of fedsel on this machine, and writes tables and JSON.

A bench is a module with `run(arguments, console)`, which prints its tables and returns their rows, and an entry here.
"""

import argparse
import json
import os
import platform
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from simulation.workbench.command_line.parser import Subparsers, positive


def positives(text: str) -> list[int]:
    """Whole numbers above 0, separated by commas, for argparse. Raises ValueError for anything else."""
    return [positive(number) for number in text.split(",")]


@dataclass(frozen=True)
class Bench:
    """Bench: its module, a description of its measurement, and its flags as argparse takes them."""

    module: str
    measures: str
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)


COUNT: dict[str, Any] = {"type": positive, "metavar": "N"}
NUMBERS: dict[str, Any] = {"type": positives, "metavar": "N,..."}
REPEATS = {"--repeats": COUNT | {"default": 15, "help": "measure N times, take the fastest (15)"}}
DEVICE: dict[str, Any] = {"choices": ("cpu", "cuda", "mps")}
PEERS: dict[str, dict[str, Any]] = {
    "--tasks": {"default": "50-of-1000,100-of-100", "metavar": "NAME,...", "help": "tasks, by cohort (both)"},
    "--rounds": COUNT | {"default": 5, "help": "rounds to measure (5)"},
    "--workers": NUMBERS | {"default": "1,2", "help": "numbers of processes to try (1,2)"},
    "--data-path": {"default": "", "metavar": "FILE", "help": "npz file of CIFAR-10 (generated images)"},
    "--device": DEVICE | {"default": "cpu", "help": "without untouched Flower on others than the cpu (cpu)"},
}
BENCHES = {
    "codec": Bench("laboratory.bench.codec", "MB/s of the update codec, and its bits beside the entropy", REPEATS),
    "round": Bench(
        "laboratory.bench.rounds",
        "seconds of a round, beside plain PyTorch, a best-effort loop and an untouched Flower app",
        {
            "--tasks": {"default": "mnist,cifar10", "metavar": "NAME,...", "help": "tasks: mnist, cifar10 (both)"},
            "--rounds": COUNT | {"default": 3, "help": "measured rounds of each turn (3)"},
            "--workers": COUNT | {"default": os.cpu_count(), "help": "processes (one a core)"},
        },
    ),
    "deploy": Bench(
        "laboratory.bench.deployed",
        "seconds and processor time of a deployed round, beside the same work in one process",
        {
            "--local-steps": NUMBERS | {"default": "5,500", "help": "numbers of local steps (5,500)"},
            "--supernodes": COUNT | {"default": 3, "help": "SuperNodes; all of them train (3)"},
            "--rounds": COUNT | {"default": 10, "help": "measured rounds after the first (10)"},
        },
    ),
    "aggregate": Bench("laboratory.bench.aggregate", "ms of summing the updates of a cohort", REPEATS),
    "clients": Bench(
        "laboratory.bench.clients",
        "start-up, seconds a round and memory of a run by the number of clients",
        {
            "--clients": NUMBERS | {"default": "100,1000,10000", "help": "sizes (100,1000,10000)"},
            "--strategies": {"default": "random", "metavar": "NAME,...", "help": "selection methods (random)"},
            "--data": {"default": "synthetic", "choices": ("synthetic", "regression"), "help": "(synthetic)"},
            "--cohort": COUNT | {"default": 50, "help": "clients that train a round (50)"},
            "--rounds": COUNT | {"default": 20, "help": "rounds to count in each run (20)"},
            "--engine": {"default": "auto", "choices": ("auto", "inline", "ray"), "help": "(auto)"},
        },
    ),
    "gpu": Bench(
        "laboratory.bench.gpu",
        "ms of a cohort as one batch and of top-k on a GPU, and fedsel beside pfl-research on it",
        PEERS
        | {
            "--device": DEVICE | {"default": "cuda", "help": "(cuda)"},
            "--workers": NUMBERS | {"default": "1,2,4", "help": "numbers of processes on the card to try (1,2,4)"},
            "--tasks": {"default": "50-of-1000", "metavar": "NAME,...", "help": "tasks of peers (50-of-1000)"},
            "--clients": COUNT | {"default": 50, "help": "clients of a cohort that is one batch (50)"},
            "--steps": COUNT | {"default": 10, "help": "their local steps (10)"},
            "--size": COUNT | {"default": 11_000_000, "help": "entries of the update of top-k (11000000)"},
            "--repeats": COUNT | {"default": 5, "help": "measure N times, take the fastest (5)"},
        },
    ),
    "masks": Bench(
        "laboratory.bench.masks",
        "ms of masking and unmasking a round, beside the functions of Flower's SecAgg+",
        {
            "--cohorts": NUMBERS | {"default": "10,100", "help": "sizes of the cohort (10,100)"},
            "--fedml": {"default": "", "metavar": "FILE", "help": "lightsecagg.py of FedML, to time it too (none)"},
            "--repeats": COUNT | {"default": 3, "help": "measure N times, take the fastest (3)"},
        },
    ),
    "peers": Bench(
        "laboratory.bench.peers",
        "seconds a round of fedsel, pfl-research and untouched Flower, on the same model, partition and steps",
        PEERS,
    ),
    "select": Bench(
        "laboratory.bench.selection",
        "ms and memory of every method's choice by the number of clients",
        {
            "--strategies": {"default": "", "metavar": "NAME,...", "help": "selection methods (all)"},
            "--clients": COUNT | {"default": 1_000_000, "help": "the largest K (1000000)"},
            "--cohort": COUNT | {"default": 10, "help": "clients selected a round (10)"},
            "--limit-s": {"type": float, "default": 60.0, "metavar": "S", "help": "longest that a round may take (60)"},
        },
    ),
    "start": Bench(
        "laboratory.bench.start",
        "seconds of commands and of a small run by stage, beside `import torch, flwr.simulation`",
        {
            "--repeats": COUNT | {"default": 5, "help": "the median of N counts (5)"},
            "--engine": {"choices": ("auto", "inline", "ray"), "default": "auto", "help": "of the stages' run (auto)"},
        },
    ),
}


def register(commands: Subparsers) -> None:
    """Add `bench` and its subcommands to the commands of the laboratory."""
    group = commands.add_parser("bench", help="measure parts of fedsel, beside other programs")
    benches = group.add_subparsers(required=True, metavar="BENCH")
    for name, bench in BENCHES.items():
        one = benches.add_parser(name, help=bench.measures)
        for flag, options in bench.flags.items():
            one.add_argument(flag, **options)
        one.add_argument("--out", type=Path, metavar="FILE", help=f"JSON file of the table (runs/bench-{name}.json)")
        one.set_defaults(call=partial(run_bench, name, bench))


def run_bench(name: str, bench: Bench, arguments: argparse.Namespace) -> int:
    """Print the machine, each measurement as soon as it is available, and the tables. Write them as JSON."""
    out: Path = arguments.out or Path("runs") / f"bench-{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if Console().is_terminal else 120)
    machine = describe_machine()
    console.print(", ".join(f"{key} {value}" for key, value in machine.items()), highlight=False)
    rows = import_module(bench.module).run(arguments, console)
    table = {"bench": name, "machine": machine, "rows": rows}
    out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    console.print(f"JSON: {out}", highlight=False)
    return 0


def describe_machine() -> dict[str, str]:
    """Describe the machine, its load included: a load above the number of cores slows the measurements."""
    versions = {name: metadata.version(name) for name in ("fedsel", "numpy", "torch", "flwr")}
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        **versions,
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
