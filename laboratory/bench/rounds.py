"""Bench `round`: seconds per round of fedsel, of two loops without Flower, and of an untouched Flower app."""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import read_rounds
from laboratory.bench.baselines import TASKS, BestEffortClients, PlainClients, Workload, flower_rounds, loop_rounds
from simulation.operations.deployment.flower_cli import DeploymentError
from simulation.workbench.comparison.run_processes import FEDSEL

WARM_UP = 1
"""Number of first rounds of a turn that are not measured, because they load data sets and build models."""

TURNS = 2
"""Number of runs of each contender. The contenders take turns, because the speed of a machine drifts."""

PLAIN, BEST_EFFORT = "plain PyTorch loop", "best-effort loop"


def engine_rounds(arguments: list[str]) -> list[float]:
    """Seconds of each round of a `fedsel run`, from rounds.jsonl."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [*FEDSEL, *arguments, "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DeploymentError(f"`{' '.join(command)}` failed: {done.stderr[-2000:]}")
        return [row["wall_s"] for row in read_rounds(out)]


def engine_commands(task: Workload, rounds: int, workers: int) -> dict[str, list[str]]:
    """Arguments of `fedsel run` for each contender; the inline engine, with one core, only if the steps are small."""
    module = next(name for name, one in TASKS.items() if one is task)
    shared = [
        *(f"data=laboratory.bench.baselines:{module}", f"model={task.model}", "partition=iid"),
        *(f"rounds={rounds}", f"clients={task.clients}", f"cohort={task.cohort}", f"local-steps={task.steps}"),
        *(f"batch-size={task.batch}", "threads=1", "checkpoint-every=0"),
    ]
    ray = "engine=ray", f"workers={workers}", f"eval-threads={workers}"
    sparse = f"kept-fraction={task.kept}", "kept-warmup-rounds=0", "kept-cosine=0", "link-cap=none"
    probing = "strategy=hetero-select", f"probe-batches={task.probe_batches}"
    hetero_select = *probing, *sparse, "curvature-layers=0"
    own = {
        "fedsel, Ray, hetero-select": (*ray, *hetero_select),
        "fedsel, inline, hetero-select": ("engine=inline", "workers=0", "eval-threads=1", *hetero_select),
        "fedsel, Ray, hetero-select, bf16": (*ray, *hetero_select, "precision=bf16", "device=cpu"),
        "fedsel, Ray, hetero-select, uncompressed": (*ray, *probing, "compressor=none"),
        "fedsel, Ray, random, uncompressed": (*ray, "strategy=random", "compressor=none"),
    }
    if task.model != "logistic":
        del own["fedsel, inline, hetero-select"]
    return {
        name: ["run", *(word for value in (*shared, *settings) for word in ("--set", value))]
        for name, settings in own.items()
    }


def contenders(task: Workload, rounds: int, workers: int) -> dict[str, Callable[[], list[float]]]:
    """Functions that measure the rounds of each contender of a task, the two loops first."""
    return {
        PLAIN: lambda: _in_fresh_process(loop_rounds, task, rounds, workers, PlainClients),
        BEST_EFFORT: lambda: _in_fresh_process(loop_rounds, task, rounds, workers, BestEffortClients),
        **{name: partial(engine_rounds, words) for name, words in engine_commands(task, rounds, workers).items()},
        "untouched Flower FedAvg": lambda: _in_fresh_process(flower_rounds, task, rounds, workers),
    }


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print the times of a round, and return the rows of the table."""
    tasks = arguments.tasks.split(",")
    if unknown := sorted(set(tasks) - set(TASKS)):
        raise ConfigError(f"--tasks takes {', '.join(TASKS)}. Got {', '.join(unknown)}.")
    rounds = TURNS * arguments.rounds
    table = Table(title=f"Seconds a round, {arguments.workers} processes of one thread, median of {rounds}")
    for heading in ("task", "what", "median s", "fastest s", "of the plain loop", "of best effort"):
        table.add_column(heading, justify="left" if heading in ("task", "what") else "right")
    rows = list(measure(tasks, arguments.rounds, arguments.workers, console))
    for row in rows:
        cells = (f"{row[name]:.2f}" for name in ("median_s", "fastest_s", "of_plain", "of_best_effort"))
        table.add_row(row["task"], row["what"], *cells, end_section=row["what"] == rows[-1]["what"])
    console.print(table)
    return rows


def measure(names: Sequence[str], rounds: int, workers: int, console: Console) -> Iterator[dict[str, Any]]:
    """Measure every contender at the tasks of `TASKS` in `names`, with `rounds` measured rounds per turn.

    Each row has a contender's seconds per round, and their median divided by that of each of the two loops.
    """
    for name in names:
        runs = contenders(TASKS[name], WARM_UP + rounds, workers)
        seconds: dict[str, list[float]] = {what: [] for what in runs}
        for _ in range(TURNS):
            for what, run_once in runs.items():
                measured = run_once()[WARM_UP:]
                seconds[what] += measured
                console.print(f"{name}, {what}: {statistics.median(measured):.2f} s a round", highlight=False)
        medians = {what: statistics.median(measured) for what, measured in seconds.items()}
        for what, median_s in medians.items():
            yield {
                "task": TASKS[name].name,
                "what": what,
                "median_s": median_s,
                "fastest_s": min(seconds[what]),
                "of_plain": median_s / medians[PLAIN],
                "of_best_effort": median_s / medians[BEST_EFFORT],
            }


def _in_fresh_process(
    measured: Callable[..., list[float]], task: Workload, rounds: int, workers: int, *others: object
) -> list[float]:
    """Call `measured` in a fresh process with threads and caches of its own."""
    os.environ["OMP_NUM_THREADS"] = str(workers)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measured, task, rounds, workers, *others).result()
