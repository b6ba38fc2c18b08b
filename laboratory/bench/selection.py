"""Bench `select`: cost of a method's selection and update on the server, by the number of clients.

Every method runs in a process of its own, which the kernel ends when a round takes too long and which may not take
more than `MEMORY_BYTES`. The model is tiny, so that only the number of clients K matters, and no client trains:
the method stands in the fake run context of the contract suite. Before the rounds that are measured every client has
been selected, and min(K, `REMEMBERED`) clients have sent an update, over `HISTORY` rounds.
"""

import argparse
import math
import resource
import signal
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fedsel_app.config import CompressionConfig, ConfigError
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update
from strategies import STRATEGIES, find_strategy
from strategies.base import SelectionStrategy
from strategies.roster import Ints, RoundInfo
from strategies.testing.fakes import make_context, outcome

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
COHORT, CLASSES, MODEL_SIZE, ROUNDS = 10, 10, 40, 100
REMEMBERED, HISTORY = 10_000, 15
MEASURED = (HISTORY + 1, 31, 32, 33, 34)
"""Measured rounds of every method: among them FedCor's first and second fit and FedCVR-Bolt's first coalitions."""
MEMORY_BYTES = 8 * 2**30
FITTED = 3
"""Largest sizes that the growth exponent is fitted to: below them the cost of calling NumPy at all prevails."""
TOO_LONG, TOO_LARGE = "too long", "too large"


@dataclass(frozen=True)
class Cost:
    """Cost of a method with `clients` clients; or only the reason, if it was `stopped`.

    Attributes
    ----------
    ms, slowest_ms : processor time of `candidates`, `select` and `update`: the median and the slowest of the rounds
    wall_ms : the median of their wall time, which on a busy machine is longer
    peak_mib : peak memory of a round, beyond the memory held before it
    state_mib : state that the method keeps between rounds
    """

    method: str
    clients: int
    ms: float = math.nan
    slowest_ms: float = math.nan
    wall_ms: float = math.nan
    peak_mib: float = math.nan
    state_mib: float = math.nan
    stopped: str = ""


class MethodBench:
    """Method with `clients` clients that exist on its roster alone; their updates are noise."""

    def __init__(self, name: str, clients: int, cohort: int) -> None:
        self.method = _make_method(STRATEGIES[name], clients, cohort)
        self._cohort = min(cohort, clients)
        self._rng = stream(0, Purpose.DATA)
        self._needs = self.method.needs(self.method.config)
        roster, rng = self.method.roster, self._rng
        roster.available[:] = True
        roster.examples[:] = rng.integers(20, 200, clients)
        roster.local_steps[:] = 50
        if self._needs.label_counts:
            roster.label_counts = rng.integers(0, 20, (clients, CLASSES))
        if self._needs.links:
            roster.uplink_bits_per_s[:] = rng.uniform(1e6, 5e6, clients)
            roster.step_s[:] = rng.uniform(0.1, 0.5, clients)
        roster.selections[:] = rng.integers(1, 5, clients)
        roster.last_selected[:] = rng.integers(1, HISTORY + 1, clients)
        roster.fit_losses[:] = rng.uniform(0.5, 3.0, clients)
        remembered = np.sort(rng.choice(clients, min(clients, REMEMBERED), replace=False))
        for number, replied in enumerate(np.array_split(rng.permutation(remembered), HISTORY), start=1):
            self._probe(np.arange(clients))
            self._update(RoundInfo(number, ROUNDS), np.sort(replied))

    def _probe(self, clients: Ints) -> None:
        if self._needs.loss_probe:
            self.method.roster.losses[:] = np.nan
            self.method.roster.losses[clients] = self._rng.uniform(0.5, 3.0, clients.size)

    def _update(self, round_info: RoundInfo, replied: Ints) -> tuple[float, float]:
        """Wall and processor seconds of `update`."""
        noise = self._rng.standard_normal((replied.size, MODEL_SIZE)).astype(np.float32)
        result = outcome(
            round_info,
            replied.tolist(),
            [Update(MODEL_SIZE, None, row) for row in noise],
            losses=self._rng.uniform(0.5, 3.0, replied.size),
            reports={name: self._rng.uniform(0.5, 3.0, replied.size) for name in sorted(self._needs.reports)},
        )
        start = _clocks()
        self.method.learn(result)
        return _since(start)

    def round(self, number: int) -> tuple[float, float]:
        """Carry out round `number`: wall and processor seconds of the method's part in it."""
        method, roster, round_info = self.method, self.method.roster, RoundInfo(number, ROUNDS)
        seed, start = method.context.run.seed, _clocks()
        probed = np.zeros(0, np.int64)
        if self._needs.loss_probe:
            probed = method.candidates(roster, round_info, self._cohort, stream(seed, Purpose.CANDIDATES, number))
        first = _since(start)
        self._probe(probed)
        start = _clocks()
        selection = method.select(roster, round_info, self._cohort, stream(seed, Purpose.SELECT, number))
        second = _since(start)
        chosen = selection.clients
        roster.selections[chosen] += 1
        roster.last_selected[chosen] = number
        third = self._update(round_info, chosen[: self._cohort])
        wall_s, cpu_s = np.sum([first, second, third], axis=0).tolist()
        return wall_s, cpu_s


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(start: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - start[0], time.process_time() - start[1]


def _make_method(method: type[SelectionStrategy], clients: int, cohort: int) -> SelectionStrategy:
    """Build the method with its defaults; without compression, if it refuses to run with it."""
    sizes: dict[str, Any] = {"clients": clients, "cohort": cohort, "size": MODEL_SIZE, "classes": CLASSES}
    try:
        return method(make_context(method.Config(), rounds=ROUNDS, **sizes))
    except ConfigError:
        return method(make_context(method.Config(), rounds=ROUNDS, compression=CompressionConfig("none"), **sizes))


def cost(name: str, clients: int, cohort: int = COHORT, limit_s: float = 0.0) -> Cost:
    """Measure the `MEASURED` rounds, the last of them once more under tracemalloc.

    With a `limit_s` the kernel ends this process if the rounds before the measured ones, or one of these, take longer.
    """
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    bench = MethodBench(name, clients, cohort)
    spent = []
    for number in MEASURED:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        spent.append(bench.round(number))
    # Tracing is slow where much is allocated: its time is not limited beyond what the rounds' was.
    signal.setitimer(signal.ITIMER_REAL, 10.0 * limit_s)
    tracemalloc.start()
    bench.round(MEASURED[-1] + 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    kept = sum(array.nbytes for array in bench.method.state().values())
    wall_s, cpu_s = np.array(spent).T
    return Cost(
        method=name,
        clients=clients,
        ms=1e3 * float(np.median(cpu_s)),
        slowest_ms=1e3 * float(cpu_s.max()),
        wall_ms=1e3 * float(np.median(wall_s)),
        peak_mib=peak / 2**20,
        state_mib=kept / 2**20,
    )


def growth(costs: Sequence[Cost]) -> float:
    """Growth exponent e of ms ~ K^e over the largest sizes that were measured; NaN from fewer than two."""
    measured = sorted((cost for cost in costs if not cost.stopped), key=lambda cost: cost.clients)[-FITTED:]
    if len(measured) < 2:
        return math.nan
    clients, ms = np.log([cost.clients for cost in measured]), np.log([cost.ms for cost in measured])
    return float(np.polyfit(clients, ms, 1)[0])


def _measure(pipe: Connection, name: str, sizes: Sequence[int], cohort: int, limit_s: float) -> None:
    """Send a `Cost` for every size through `pipe`; runs in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for clients in sizes:
        try:
            pipe.send(cost(name, clients, cohort, limit_s))
        except MemoryError:
            pipe.send(Cost(name, clients, stopped=TOO_LARGE))
            return


def costs_of(name: str, sizes: Sequence[int], cohort: int, limit_s: float) -> Iterator[Cost]:
    """Costs of method `name` at `sizes`, ascending, up to the first size at which it is stopped."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    mine, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(theirs, name, sizes, cohort, limit_s), daemon=True)
    process.start()
    theirs.close()
    for clients in sizes:
        try:
            found = mine.recv()
        except EOFError:
            process.join()
            if process.exitcode != -signal.SIGALRM:
                raise RuntimeError(f"The measurement of {name} with {clients} clients failed; see above.") from None
            found = Cost(name, clients, stopped=TOO_LONG)
        yield found
        if found.stopped:
            break
    process.join()


def names_of(text: str) -> list[str]:
    """The methods listed with commas in `text`; all of them where it is empty. Raises ConfigError for an unknown."""
    names = [name.strip() for name in text.split(",") if name.strip()] or list(STRATEGIES)
    for name in names:
        find_strategy(name)
    return names


def run(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """bench `select`: print the table and return its rows, one a method and size.

    `arguments` has `strategies` (names with commas between them; empty: all), `clients` (the largest K), `cohort` and
    `limit_s`.
    """
    sizes = [size for size in SIZES if size <= arguments.clients]
    title = f"select + update: processor ms a round by the number of clients K, cohort {arguments.cohort}"
    table = Table("method", *(f"{size:,}" for size in sizes), "growth", "slowest", "peak MiB", "kept MiB", title=title)
    table.caption = f"growth: exponent of K over the {FITTED} largest sizes; what is right of it: at the largest K"
    rows: list[dict[str, Any]] = []
    for name in names_of(arguments.strategies):
        costs = list(costs_of(name, sizes, arguments.cohort, arguments.limit_s))
        console.print(
            f"{name}: {', '.join(f'{each.ms:,.1f} ms' for each in costs if not each.stopped)}", highlight=False
        )
        exponent = growth(costs)
        table.add_row(name, *_cells(costs, len(sizes), arguments.limit_s), *_largest(costs, exponent))
        rows += [_row(each, exponent) for each in costs]
    console.print(table)
    return rows


def _row(found: Cost, exponent: float) -> dict[str, Any]:
    values = asdict(found) | {"growth": exponent}
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}


def _cells(costs: Sequence[Cost], count: int, limit_s: float) -> list[str]:
    words = {TOO_LONG: f"> {limit_s:g} s", TOO_LARGE: f"> {MEMORY_BYTES // 2**30} GiB"}
    cells = [words[each.stopped] if each.stopped else f"{each.ms:,.1f}" for each in costs]
    return cells + ["-"] * (count - len(cells))


def _largest(costs: Sequence[Cost], exponent: float) -> list[str]:
    measured = [each for each in costs if not each.stopped]
    if not measured:
        return ["-"] * 4
    last = measured[-1]
    shown = "-" if math.isnan(exponent) else f"{exponent:.2f}"
    return [shown, f"{last.slowest_ms:,.1f}", f"{last.peak_mib:,.1f}", f"{last.state_mib:,.1f}"]
