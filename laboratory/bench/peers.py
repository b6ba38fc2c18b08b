"""Bench `peers`: seconds a round of fedsel beside pfl-research and untouched Flower.

Every contender starts from the same weights, has the same partition of the same images, and takes as many steps of
plain SGD in float32; none evaluates between the rounds. Each runs in processes of its own, once with each number of
workers, which share the cores as torch threads, and shows the best.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from fedsel_app.records.run_folder import read_rounds
from laboratory.bench.peer_tasks import PEER_TASKS, SEED, PeerResult, PeerRun, PeerTask, read_result, write_run
from simulation.operations.deployment.flower_cli import DeploymentError
from simulation.operations.guard.transport import free_ports

ROOT = Path(__file__).parents[2]
"""Folder of the package `tests`, which the contenders' processes import."""
WARM_UP = 1
"""Rounds that are left out: workers start, data sets are loaded, models are built."""
FEDSEL, PFL, FLOWER = "fedsel", "pfl-research", "untouched Flower"
PACKAGES = {PFL: "pfl"}
"""Contender -> package that it needs and fedsel does not."""
LOSS_TOLERANCE = 0.1
"""Share by which the test losses of contenders may differ: they draw cohorts, mini-batches and dropout themselves."""
EQUAL_CLIENTS, EQUAL_EPOCHS, EQUAL_ROUNDS = 4, 2, 2
"""Sizes of the run in which nothing is drawn."""
MODEL_TOLERANCE = 1e-3
"""Share of the change of the weights by which the models after that run may differ: float32 sums in another order."""

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class PeerTime:
    """Times of a contender with one number of workers.

    Attributes
    ----------
    start_s : what the whole run takes beyond its rounds at their median
    of_fedsel : the median in units of fedsel's, each with its best number of workers
    examples : examples trained on in each round, epochs included
    loss : test loss after the last round
    """

    task: str
    contender: str
    workers: int
    median_s: float
    fastest_s: float
    start_s: float
    examples: int
    loss: float
    of_fedsel: float = 1.0


def fedsel_result(run: PeerRun, folder: Path) -> PeerResult:
    """Carry out `fedsel run`: in one process where there is one worker, else through Ray."""
    task = run.task
    values = [
        *(f"model={task.model}_channels_last", f"data={run.data.data}", f"data-path={run.data.data_path}"),
        *("local-steps=0", f"local-epochs={task.epochs}", f"batch-size={task.batch}", f"lr={task.lr}", "lr-decay=0"),
        *("partition=iid", "solver=sgd", "momentum=0", "clip-norm=0", "compressor=none", "server-optimizer=mean"),
        *("engine=inline" if run.workers == 1 else "engine=ray", f"workers={0 if run.workers == 1 else run.workers}"),
        *(f"device={run.device}", f"client-gpus={1 / run.workers if run.device == 'cuda' and run.workers > 1 else 0}"),
        *(f"threads={run.threads}", f"eval-threads={run.threads * run.workers}", "checkpoint-every=0"),
        *(f"eval-every={run.rounds}", f"rounds={run.rounds}", f"clients={task.clients}", f"cohort={task.cohort}"),
        *("strategy=random", f"seed={SEED}"),
    ]
    out = folder / "run"
    flags = [flag for value in values for flag in ("--set", value)]
    command = ["-m", "simulation.workbench.cli", "run", *flags, "--out", str(out)]
    _wait([_started(command, run, folder / "errors-0")], folder)
    rows = read_rounds(out)
    clients = [json.loads(line) for line in (out / "clients.jsonl").read_text(encoding="utf-8").splitlines()]
    examples = {row["client"]: row["examples"] for row in clients}
    trained = [task.epochs * sum(examples[client] for client in row["aggregated"]) for row in rows]
    with np.load(out / "model.npz", allow_pickle=False) as model:
        return PeerResult([row["wall_s"] for row in rows], trained, rows[-1]["loss"], model["parameters"])


def peer_result(module: str, run: PeerRun, folder: Path, processes: int) -> PeerResult:
    """Carry out a peer's module in its own processes; the first one's result."""
    write_run(folder / "run.json", run)
    addresses = ",".join(f"localhost:{port}" for port in free_ports(processes))
    started = []
    for rank in range(processes):
        ranks = {"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)} if processes > 1 else {}
        ranks["PFL_PYTORCH_DEVICE"] = run.device
        files = str(folder / "run.json"), str(folder / f"result-{rank}.npz")
        command = ["-c", f"import sys; from {module} import main; main(*sys.argv[1:])", *files]
        started.append(_started(command, run, folder / f"errors-{rank}", ranks))
    _wait(started, folder)
    return read_result(folder / "result-0.npz")


def result_of_contender(contender: str, run: PeerRun, folder: Path) -> PeerResult:
    """Carry out a run by a contender; `folder` must be empty."""
    if contender == FEDSEL:
        return fedsel_result(run, folder)
    if contender == PFL:
        return peer_result("laboratory.bench.peer_pfl", run, folder, run.workers)
    return peer_result("laboratory.bench.peer_flower", run, folder, 1)


def run_without_chance(task: PeerTask, data: DataConfig, folder: Path) -> PeerRun:
    """Run of a few clients of different sizes, which take each step on all of their examples; writes its data set."""
    dataset, examples = load(data, SEED), EQUAL_CLIENTS * task.batch - EQUAL_CLIENTS // 2
    parts = {"train": slice(examples), "test": slice(task.batch)}
    arrays = {f"{name}_{part}": getattr(dataset, f"{name}_{part}")[few] for part, few in parts.items() for name in "xy"}
    np.savez(folder / "few.npz", allow_pickle=False, classes=dataset.classes, **arrays)
    few_task = replace(
        task, model=task.model_without_dropout, clients=EQUAL_CLIENTS, cohort=EQUAL_CLIENTS, epochs=EQUAL_EPOCHS
    )
    return PeerRun(few_task, str(folder / "few.npz"), EQUAL_ROUNDS, threads=1, workers=1)


def compare_models(contenders: Sequence[str], task: PeerTask, data: DataConfig) -> float:
    """Let contenders train the task's model in rounds in which nothing is drawn, and compare their models.

    Returns the largest difference from fedsel's, as a share of the change of the weights; raises DeploymentError where
    it is more than rounding.
    """
    with tempfile.TemporaryDirectory() as name:
        run = run_without_chance(task, data, Path(name))
        models = {}
        for number, contender in enumerate(contenders):
            folder = Path(name) / f"{number}"
            folder.mkdir()
            models[contender] = result_of_contender(contender, run, folder).parameters
        start = np.concatenate([weight.detach().numpy().ravel() for weight in run.initial_model().parameters()])
    return refuse_different_models(task, models, start)


def measure(contender: str, run: PeerRun) -> PeerTime:
    """Measure a contender in one run of `run.rounds` rounds, of which the first are left out."""
    with tempfile.TemporaryDirectory() as name:
        started = time.perf_counter()
        result = result_of_contender(contender, run, Path(name))
        whole_s = time.perf_counter() - started
    if len(set(result.examples)) != 1 or len(result.examples) != run.rounds:
        raise DeploymentError(
            f"{contender} trained on {result.examples} examples in {run.rounds} rounds, not on equally many."
        )
    counted = result.seconds[WARM_UP:]
    median_s = statistics.median(counted)
    start_s = whole_s - run.rounds * median_s
    return PeerTime(
        *(run.task.name, contender, run.workers, median_s, min(counted), start_s, result.examples[0], result.loss)
    )


def best_of(times: Sequence[PeerTime]) -> list[PeerTime]:
    """The fastest time of each contender of a task, fedsel's first, in units of fedsel's."""
    best = {time.contender: time for time in sorted(times, key=lambda time: -time.median_s)}
    fedsel_s = best[FEDSEL].median_s
    ordered = sorted(best.values(), key=lambda time: time.contender != FEDSEL)
    return [PeerTime(**asdict(time) | {"of_fedsel": time.median_s / fedsel_s}) for time in ordered]


def refuse_different_models(task: PeerTask, models: Mapping[str, Vector], start: Vector) -> float:
    """Return the largest difference of a model from fedsel's; raise DeploymentError where it is more than rounding."""
    change = models[FEDSEL] - start
    shares = {
        contender: float(np.linalg.norm(model - models[FEDSEL]) / np.linalg.norm(change))
        for contender, model in models.items()
    }
    if differing := {contender: share for contender, share in shares.items() if not share <= MODEL_TOLERANCE}:
        said = ", ".join(f"{contender}'s by {share:.2%}" for contender, share in differing.items())
        raise DeploymentError(
            f"The contenders of {task.name} do not do the same work: after rounds in which nothing is drawn, models "
            f"differ from fedsel's, {said} of the change of its weights."
        )
    return max(shares.values())


def refuse_unequal(times: Sequence[PeerTime]) -> None:
    """Raise DeploymentError where the contenders of a task did not do the same work."""
    examples, losses = {time.examples for time in times}, [time.loss for time in times]
    if len(examples) > 1 or not np.ptp(losses) <= LOSS_TOLERANCE * min(losses):
        done = ", ".join(f"{one.contender} {one.examples} examples to loss {one.loss:.3f}" for one in times)
        raise DeploymentError(f"The contenders of {times[0].task} did not do the same work: {done}.")


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print what a round and the start take in each task, and return all rows."""
    names = arguments.tasks.split(",")
    if unknown := sorted(set(names) - set(PEER_TASKS)):
        raise ConfigError(f"--tasks takes {', '.join(PEER_TASKS)}. Got {', '.join(unknown)}.")
    path = str(Path(arguments.data_path).absolute()) if arguments.data_path else ""
    if not path:
        console.print("Generated images of CIFAR-10's shape: --data-path takes an npz file of the real ones.")
    flowers = [FLOWER] if arguments.device == "cpu" else []
    present = [name for name in (FEDSEL, PFL, *flowers) if name not in PACKAGES or _is_installed(PACKAGES[name])]
    if PFL not in present:
        console.print("pfl-research is not installed and left out: pip install 'fedsel[peers]' adds it.", markup=False)
    rows: list[PeerTime] = []
    for name in names:
        title = f"{PEER_TASKS[name].name} ({PEER_TASKS[name].source}), median of {arguments.rounds} rounds"
        table = Table("contender", title=title)
        for heading in ("workers", "median s", "fastest s", "of fedsel", "start s", "examples a round", "loss"):
            table.add_column(heading, justify="right")
        rounds, device = WARM_UP + arguments.rounds, arguments.device
        runs = [_peer_run(PEER_TASKS[name], path, rounds, number, device) for number in arguments.workers]
        difference = compare_models(present, PEER_TASKS[name], runs[0].data)
        console.print(
            f"{name}: after {EQUAL_ROUNDS} rounds in which nothing is drawn, models differ by {difference:.1e}."
        )
        times = []
        for contender, one in product(present, runs):
            times.append(measure(contender, one))
            console.print(f"{contender}, workers {one.workers}: {times[-1].median_s:.2f} s a round", highlight=False)
        for best in best_of(times):
            table.add_row(
                *(best.contender, str(best.workers), f"{best.median_s:.2f}", f"{best.fastest_s:.2f}"),
                *(f"{best.of_fedsel:.2f}", f"{best.start_s:.1f}", f"{best.examples:,}", f"{best.loss:.3f}"),
            )
        console.print(table)
        refuse_unequal(times)
        rows += times
    return [asdict(one) for one in rows]


def _peer_run(task: PeerTask, path: str, rounds: int, workers: int, device: str) -> PeerRun:
    threads = max(1, (os.cpu_count() or 1) // workers)
    return PeerRun(task, path, rounds, threads=threads, workers=workers, device=device)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _started(
    command: list[str], run: PeerRun, errors: Path, more: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": str(run.threads), "PYTHONPATH": path} | (more or {})
    with errors.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-P", *command], env=environment, stdout=subprocess.DEVNULL, stderr=file
        )


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait for processes to end. Where one fails the others are ended, and its last lines are raised."""
    while any(process.poll() is None for process in processes):
        failed = [rank for rank, process in enumerate(processes) if process.returncode]
        if failed:
            for process in processes:
                process.kill()
        time.sleep(0.05)
    for rank, process in enumerate(processes):
        if process.returncode > 0:
            said = (folder / f"errors-{rank}").read_text(encoding="utf-8", errors="replace")
            raise DeploymentError(f"{process.args!r} failed: {said[-2000:]}")
