"""Progress of a run on the terminal, and the plan of a run."""

import time
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import tomli_w
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import load
from fedsel_app.data.inputs import trial_inputs
from fedsel_app.models import building
from fedsel_app.records.run_folder import describe_round
from fedsel_app.records.schema import schedule_round
from fedsel_app.wiring.configuration import AppConfig
from simulation.engines.choice import choose
from simulation.workbench.catalogue.published import expected_shape
from strategies.round.clients import SCALAR_BYTES

LEAST_LEFT_S = 60.0
"""Least remaining time in seconds that a line reports."""


class RunDisplay:
    """Progress of a run: a bar with the newest round and the remaining time; without a terminal, one line per round.

    Parameters
    ----------
    rounds : rounds of the run
    console : shows the progress
    completed : rounds that an earlier process completed
    measured : True if the rounds' seconds are measured, not simulated
    """

    def __init__(self, rounds: int, console: Console, completed: int = 0, *, measured: bool = False) -> None:
        self._console, self._rounds, self._completed, self._measured = console, rounds, completed, measured
        self._began_s = time.monotonic()
        columns = (
            TextColumn("round"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task("connecting clients", total=rounds, completed=completed)

    def __enter__(self) -> Self:
        if self._completed:
            self._console.print(f"Continuing after round {self._completed} of {self._rounds}.", highlight=False)
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, row: dict[str, Any]) -> None:
        """Show a finished round."""
        text, done = describe_round(row, measured=self._measured), schedule_round(row)
        if self._console.is_terminal:
            self._progress.update(self._task, completed=done, description=text)
            return
        began, now_s = self._completed, time.monotonic()
        left_s = (now_s - self._began_s) / max(done - began, 1) * (self._rounds - done)
        left = f"; about {timedelta(seconds=round(left_s))} left" if left_s >= LEAST_LEFT_S else ""
        print(f"round {row['round']} of {self._rounds}: {text}{left}", flush=True)


def print_plan(config: AppConfig, console: Console) -> None:
    """Print the resolved configuration as TOML, then clients, cohort, bytes a round and engine as comments."""
    expected, inputs = expected_shape(config.data), None
    outputs: tuple[int, ...] = ()
    try:
        dataset = load(config.data, config.run.seed)
        inputs, outputs = trial_inputs(dataset.x_train, dataset.x_test), dataset.output_shape
        shape, classes, data = dataset.sample_shape, dataset.classes, dataset.description
    except ConfigError as absent:
        if expected is None:
            raise
        shape, classes, count = expected
        words = "labels" if config.data.data == "ptb-xl" else "classes"
        data = f"{count:,} training examples of shape {shape}, {classes} {words}; not available yet: {absent}"
    module = building.build(config.run.model, shape, classes, config.run.seed, inputs, outputs)
    size = sum(parameter.numel() for parameter in module.parameters())
    dense = 4 * size
    kept_share = config.budget.kept_fraction if config.compression.sparsifies else 1.0
    numbers = config.strategy.needs(config.method).probed_numbers
    probe = config.run.clients * (dense + SCALAR_BYTES * numbers) if numbers else 0
    console.print(tomli_w.dumps(config.values()).rstrip(), markup=False, highlight=False, soft_wrap=True)
    for line in (
        f"# model: {config.run.model}, {size:,} parameters, {dense / 1e6:.3f} MB",
        f"# data: {config.data.data}, {data}",
        f"# clients: {config.run.clients}, cohort: {config.run.cohort}, rounds: {config.run.rounds}",
        f"# a round sends about {config.run.cohort * kept_share * dense / 1e6:.3f} MB of values up, "
        f"{config.run.cohort * dense / 1e6:.3f} MB down, {probe / 1e6:.3f} MB for probes",
        f"# engine: {choose(config)}; torch threads of a client: {config.execution.threads}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
