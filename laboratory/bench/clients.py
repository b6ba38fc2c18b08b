"""Bench `clients`: start-up, seconds a round and peak memory of a run by its clients, the cohort fixed.

Every run is made anew in a fresh process, as `fedsel run` makes it, on generated data of which each client has its own.
The cohort, its local steps and all other settings are the same at every size; each client adds one test example.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import AppConfig, resolve
from simulation.engines.choice import choose
from strategies import STRATEGIES

DATA = {"synthetic": {"model": "logistic"}, "regression": {"model": "linear"}}
"""Generated data sets, and settings of a run on them."""
SHARED = {"partition": "natural", "test-fraction": 1e-9, "local-steps": 10, "threads": 1, "eval-threads": 1}
TURNS = 3
"""Runs of each size, each after all the others: the speed of a machine drifts."""
POLL_S = 0.2
PROC = Path("/proc")


@dataclass(frozen=True)
class Run:
    """Times and memory of one run.

    Attributes
    ----------
    start_s : from the start of the process to the end of its first round
    round_s : mean of all later rounds, the checkpoints between them included
    cpu_s : processor time of such a round in the server's process, which inline does the clients' work too
    peak_mib : sum of the peaks of all its processes; what they share is in each
    """

    engine: str
    start_s: float
    round_s: float
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class ClientsCost:
    """Cost of a run with `clients` clients: medians of its `TURNS`; or only the reason why it `failed`.

    Attributes
    ----------
    ratio, cpu_ratio : `round_s` and `cpu_s` over those of the smallest number of clients
    """

    strategy: str
    clients: int
    engine: str = ""
    start_s: float | None = None
    round_s: float | None = None
    ratio: float | None = None
    cpu_s: float | None = None
    cpu_ratio: float | None = None
    peak_mib: float | None = None
    failed: str = ""


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Print what a run takes at each size, and return the rows of the table."""
    if not PROC.is_dir():
        raise ConfigError("The bench reads the memory of processes from /proc, which this system lacks.")
    names = arguments.strategies.split(",")
    if unknown := sorted(set(names) - set(STRATEGIES)):
        raise ConfigError(f"--strategies takes {', '.join(STRATEGIES)}. Got {', '.join(unknown)}.")
    settings = SHARED | DATA[arguments.data] | {"engine": arguments.engine}
    settings |= {
        "data": f"laboratory.data_sets.{arguments.data}:load",
        "cohort": arguments.cohort,
        "rounds": arguments.rounds + 1,
    }
    table = Table(title=f"{arguments.data}, {arguments.cohort} clients a round, medians of {TURNS} runs")
    times = ("start s", "s a round", "of the fewest", "CPU s a round", "of the fewest")
    for heading in ("method", "clients", "engine", *times, "peak MiB"):
        table.add_column(heading, justify="left" if heading in ("method", "engine") else "right")
    sizes = sorted({*arguments.clients})
    costs = [cost for name in names for cost in measure(settings | {"strategy": name}, sizes, console)]
    for cost in costs:
        measured = (cost.start_s, cost.round_s, cost.ratio, cost.cpu_s, cost.cpu_ratio, cost.peak_mib)
        digits = (1, 3, 2, 3, 2, 0)
        cells = [f"{value:,.{places}f}" for value, places in zip(measured, digits, strict=True) if value is not None]
        table.add_row(cost.strategy, f"{cost.clients:,}", cost.engine, *cells)
    console.print(table)
    for cost in costs:
        if cost.failed:
            console.print(f"{cost.strategy}, {cost.clients:,} clients: {cost.failed}", highlight=False)
    return [asdict(cost) for cost in costs]


def measure(settings: dict[str, Any], sizes: Sequence[int], console: Console) -> Iterator[ClientsCost]:
    """Measure a run of `settings` at each number of clients; `rounds` less one, the first, are measured."""
    runs: dict[int, list[Run]] = {size: [] for size in sizes}
    failed: dict[int, str] = {}
    for _ in range(TURNS):
        for size in sizes:
            if size not in failed:
                try:
                    runs[size].append(run_once(settings | {"clients": size, "data-arguments": f"clients={size}"}))
                except (ConfigError, RuntimeError) as error:
                    failed[size] = str(error)
                    continue
                found = f"{settings['strategy']}, {size:,} clients: {runs[size][-1].round_s:.3f} s a round"
                console.print(found, highlight=False)
    least = None
    for size in sizes:
        if size in failed:
            yield ClientsCost(settings["strategy"], size, failed=failed[size])
            continue
        start_s, round_s, cpu_s, peak_mib = (
            statistics.median(getattr(one, name) for one in runs[size])
            for name in ("start_s", "round_s", "cpu_s", "peak_mib")
        )
        least = least or (round_s, cpu_s)
        times = (start_s, round_s, round_s / least[0], cpu_s, cpu_s / least[1])
        yield ClientsCost(settings["strategy"], size, runs[size][0].engine, *times, peak_mib)


def run_once(settings: dict[str, Any]) -> Run:
    """Carry out one run in a fresh process. Raises RuntimeError if that process fails, with its reason."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    started_s = time.monotonic()
    ends_s: list[tuple[float, float]] = []
    engine, failure, peaks = "", "the process was killed", dict[int, int]()
    with tempfile.TemporaryDirectory() as folder:
        process = context.Process(target=_simulate, args=(settings | {"out": str(Path(folder) / "run")}, sender))
        process.start()
        sender.close()
        while process.is_alive() or receiver.poll():
            for pid in descendants(process.pid):
                peaks[pid] = max(peaks.get(pid, 0), peak_kib(pid))
            if not receiver.poll(POLL_S):
                continue
            try:
                kind, content = receiver.recv()
            except EOFError:
                break
            if kind == "engine":
                engine = content
            elif kind == "round":
                ends_s.append(content)
            else:
                failure = content
        process.join()
    if process.exitcode:
        raise RuntimeError(failure)
    (first_s, first_cpu_s), (last_s, last_cpu_s), later = ends_s[0], ends_s[-1], len(ends_s) - 1
    times = (first_s - started_s, (last_s - first_s) / later, (last_cpu_s - first_cpu_s) / later)
    return Run(engine, *times, sum(peaks.values()) / 2**10)


def _simulate(settings: dict[str, Any], sender: Connection) -> None:
    try:
        config: AppConfig = resolve(settings)
        choice = choose(config)
        sender.send(("engine", choice.engine))
        choice.simulate(config, lambda _: sender.send(("round", (time.monotonic(), time.process_time()))))
    except (ConfigError, MemoryError) as error:
        sender.send(("failed", str(error) or "the memory did not suffice"))
        raise SystemExit(1) from error


def descendants(parent: int | None) -> Iterable[int]:
    """Ids of the process `parent` and of all that it and its children have started."""
    children: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                # The name, in brackets, may hold anything; the parent is the second field behind it.
                above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(above, []).append(int(folder.name))
    found = [] if parent is None else [parent]
    for pid in found:
        found += children.get(pid, [])
    return found


def peak_kib(pid: int) -> int:
    """Most memory in KiB that the process had resident so far; 0 where it has ended."""
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
