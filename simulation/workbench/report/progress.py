"""Progress of a run on the terminal, and the plan of a run."""

import time
from datetime import timedelta

import tomli_w
from rich.console import Console

from fedsel_app.data.dataset import load
from fedsel_app.data.inputs import trial_inputs
from fedsel_app.models import building
from fedsel_app.records.run_folder import describe_round
from fedsel_app.records.schema import Row, schedule_round
from fedsel_app.wiring.configuration import AppConfig
from simulation.engines.choice import choose
from strategies.round.clients import SCALAR_BYTES

LEAST_LEFT_S = 60.0
"""Least remaining time in seconds that a line reports."""


class RunDisplay:
    """Progress of a run: a line for each round, with the remaining time.

    Parameters
    ----------
    rounds : rounds of the run
    console : says that a run continues
    completed : rounds that an earlier process completed
    measured : True if the rounds' seconds are measured, not simulated
    """

    def __init__(self, rounds: int, console: Console, completed: int = 0, *, measured: bool = False) -> None:
        self._rounds, self._completed, self._measured = rounds, completed, measured
        self._began_s = time.monotonic()
        if completed:
            console.print(f"Continuing after round {completed} of {rounds}.", highlight=False)

    def show(self, row: Row) -> None:
        """Show a finished round."""
        done, passed_s = schedule_round(row), time.monotonic() - self._began_s
        left_s = passed_s / max(done - self._completed, 1) * (self._rounds - done)
        left = f"; about {timedelta(seconds=round(left_s))} left" if left_s >= LEAST_LEFT_S else ""
        text = describe_round(row, measured=self._measured)
        print(f"round {row['round']} of {self._rounds}: {text}{left}", flush=True)


def print_plan(config: AppConfig, console: Console) -> None:
    """Print the resolved configuration as TOML, then clients, cohort, bytes a round and engine as comments."""
    dataset = load(config.data, config.run.seed)
    inputs = trial_inputs(dataset.x_train, dataset.x_test)
    module = building.build(
        config.run.model, dataset.sample_shape, dataset.classes, config.run.seed, inputs, dataset.output_shape
    )
    size = sum(parameter.numel() for parameter in module.parameters())
    dense = 4 * size
    kept_share = config.budget.kept_fraction if config.compression.sparsifies else 1.0
    numbers = config.strategy.needs(config.method).probed_numbers
    probe = config.run.clients * (dense + SCALAR_BYTES * numbers) if numbers else 0
    console.print(tomli_w.dumps(config.values()).rstrip(), markup=False, highlight=False, soft_wrap=True)
    for line in (
        f"# model: {config.run.model}, {size:,} parameters, {dense / 1e6:.3f} MB",
        f"# data: {config.data.data}, {dataset.description}",
        f"# clients: {config.run.clients}, cohort: {config.run.cohort}, rounds: {config.run.rounds}",
        f"# a round sends about {config.run.cohort * kept_share * dense / 1e6:.3f} MB of values up, "
        f"{config.run.cohort * dense / 1e6:.3f} MB down, {probe / 1e6:.3f} MB for probes",
        f"# engine: {choose(config)}; torch threads of a client: {config.execution.threads}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
