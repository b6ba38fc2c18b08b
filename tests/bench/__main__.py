"""Benches of fedsel's own, from the root of a checkout: `python -m tests.bench NAME`."""

import argparse
import sys
from typing import Any

from fedsel_app.config import ConfigError
from simulation.laboratory.bench.commands import COUNT, NUMBERS, REPEATS, Bench, add_benches

DEVICE: dict[str, Any] = {"choices": ("cpu", "cuda", "mps")}
PEERS: dict[str, dict[str, Any]] = {
    "--tasks": {"default": "50-of-1000,100-of-100", "metavar": "NAME,...", "help": "tasks, by cohort (both)"},
    "--rounds": COUNT | {"default": 5, "help": "rounds to measure (5)"},
    "--workers": NUMBERS | {"default": "1,2", "help": "numbers of processes to try (1,2)"},
    "--data-path": {"default": "", "metavar": "FILE", "help": "npz file of CIFAR-10 (generated images)"},
    "--device": DEVICE | {"default": "cpu", "help": "without untouched Flower on others than the cpu (cpu)"},
}
BENCHES = {
    "aggregate": Bench("tests.bench.aggregate", "ms of summing the updates of a cohort", REPEATS),
    "clients": Bench(
        "tests.bench.clients",
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
        "tests.bench.gpu",
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
    "peers": Bench(
        "tests.bench.peers",
        "seconds a round of fedsel, pfl-research and untouched Flower, on the same model, partition and steps",
        PEERS,
    ),
    "select": Bench(
        "tests.bench.selection",
        "ms and memory of every method's choice by the number of clients",
        {
            "--strategies": {"default": "", "metavar": "NAME,...", "help": "selection methods (all)"},
            "--clients": COUNT | {"default": 1_000_000, "help": "the largest K (1000000)"},
            "--cohort": COUNT | {"default": 10, "help": "clients selected a round (10)"},
            "--limit-s": {"type": float, "default": 60.0, "metavar": "S", "help": "longest that a round may take (60)"},
        },
    ),
    "start": Bench(
        "tests.bench.start",
        "seconds of commands and of a small run by stage, beside `import torch, flwr.simulation`",
        {
            "--repeats": COUNT | {"default": 5, "help": "the median of N counts (5)"},
            "--engine": {"choices": ("auto", "inline", "ray"), "default": "auto", "help": "of the stages' run (auto)"},
        },
    ),
}


def main(command: list[str] | None = None) -> int:
    """Carry out one bench; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add_benches(parser.add_subparsers(required=True, metavar="BENCH"), BENCHES)
    arguments = parser.parse_args(command)
    try:
        status: int = arguments.call(arguments)
    except ConfigError as error:
        print(f"tests.bench: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
