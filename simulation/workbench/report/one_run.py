"""One run on the terminal: its plan, its progress, and its summary at the end."""

import time
from datetime import timedelta
from pathlib import Path

import tomli_w
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import load
from fedsel_app.records.run_folder import describe_round, read_rounds
from fedsel_app.records.schema import Row, schedule_round, score_name
from fedsel_app.wiring.configuration import AppConfig
from simulation.engines.choice import choose
from simulation.engines.preflight import model_cost
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.measures import averaged_text

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


def report_run(folder: Path, console: Console) -> None:
    """Print the summary of the run in `folder`, and what to do next.

    Raises ConfigError if the run is not finished.
    """
    summary = read_summary(folder)
    if summary is None:
        raise ConfigError(f"The run in {folder} is not finished: there is no summary.json.")
    score = score_name(summary)
    table = Table(show_header=False, box=None, pad_edge=False)
    metrics = {
        f"{prefix}{name}": value
        for field, prefix in (("final_metrics", "final_"), ("final_client_metrics", "final_client_"))
        for name, value in summary.pop(field, {}).items()
    }
    for key, value in (summary | metrics).items():
        absent = {"final_loss": "not finite"}.get(key, "not reached" if "_to_target" in key else "")
        if key not in ("versions", "ended") and (value is not None or absent):
            text = absent if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
            if key == f"stable_{score}":
                text += f" ({averaged_text(sum(score in row for row in read_rounds(folder)))})"
            table.add_row(escape(key), escape(text))
    console.print(table)
    console.print(f"Run folder: {folder}\nNext: fedsel report {folder}", markup=False, soft_wrap=True, highlight=False)
