"""`fedsel bench`: measures the parts of fedsel on this machine, and writes tables and JSON.

A bench is a module with `run(arguments, console)`, which prints its tables and returns their rows, and an entry here.
"""

import argparse
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from simulation.command_line.arguments import Subparsers, positive


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
BENCHES = {
    "codec": Bench(
        "simulation.laboratory.bench.codec", "MB/s of the update codec, and its bits beside the entropy", REPEATS
    ),
    "round": Bench(
        "simulation.laboratory.bench.rounds",
        "seconds of a round, beside plain PyTorch, a best-effort loop and an untouched Flower app",
        {
            "--tasks": {"default": "mnist,cifar10", "metavar": "NAME,...", "help": "tasks: mnist, cifar10 (both)"},
            "--rounds": COUNT | {"default": 3, "help": "measured rounds of each turn (3)"},
            "--workers": COUNT | {"default": os.cpu_count(), "help": "processes (one a core)"},
        },
    ),
    "deploy": Bench(
        "simulation.laboratory.bench.deployed",
        "seconds and processor time of a deployed round, beside the same work in one process",
        {
            "--local-steps": NUMBERS | {"default": "5,500", "help": "numbers of local steps (5,500)"},
            "--supernodes": COUNT | {"default": 3, "help": "SuperNodes; all of them train (3)"},
            "--rounds": COUNT | {"default": 10, "help": "measured rounds after the first (10)"},
        },
    ),
}


def register(commands: Subparsers) -> None:
    """Add `bench` and its subcommands to the commands of `fedsel`."""
    group = commands.add_parser("bench", help="time a round, the encoding of updates and a deployment")
    add_benches(group.add_subparsers(required=True, metavar="BENCH"), BENCHES)


def add_benches(commands: Subparsers, benches: Mapping[str, Bench]) -> None:
    """Add a command for each of `benches`, by name; its `call` carries it out."""
    for name, bench in benches.items():
        one = commands.add_parser(name, help=bench.measures)
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
