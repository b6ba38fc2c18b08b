"""Progress of a run on the terminal, and the plan of a run."""

import time
from datetime import timedelta

import tomli_w
from rich.console import Console

from fedsel_app.data.dataset import load
from fedsel_app.records.run_folder import describe_round
from fedsel_app.records.schema import Row, schedule_round
from fedsel_app.wiring.configuration import AppConfig
from simulation.engines.choice import choose
from simulation.engines.preflight import model_cost

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
    """Print the resolved configuration as TOML, then the data and the engine as comments.

    Raises ConfigError as a run would, if there are no data, or no model for them.
    """
    model_cost(config)
    console.print(tomli_w.dumps(config.values()).rstrip(), markup=False, highlight=False, soft_wrap=True)
    data = f"# data: {config.data.data}, {load(config.data, config.run.seed).description}"
    console.print(f"{data}\n# engine: {choose(config)}", markup=False, highlight=False, soft_wrap=True)
