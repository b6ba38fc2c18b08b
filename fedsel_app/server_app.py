"""Flower's ServerApp: the server of a run, built from Flower's run configuration."""

import logging
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsel_app.config import ConfigError
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.run_folder import describe
from fedsel_app.wiring.configuration import resolve_run_config
from fedsel_app.wiring.reply_event import reply_event
from fedsel_app.wiring.server import run_with
from strategies.round.flower_grid import FlowerGrid

app = ServerApp()


class SentenceAlone(logging.Filter):
    """Filter of Flower's log that keeps only the sentence of a ConfigError, without traceback and exit code."""

    _said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback of a ConfigError from its record, and drop the notice on the exit that follows."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConfigError):
            record.msg, record.args, record.exc_info = str(error), (), None
            self._said = True
        return not (self._said and record.getMessage().startswith("Exit Code:"))


logging.getLogger("flwr").addFilter(SentenceAlone())


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds, and print one line for each finished round."""
    config = resolve_run_config(context.run_config)

    def print_round(row: dict[str, Any]) -> None:
        shown = describe(row, measured=config.network.links == "measured")
        print(f"round {row['round']} of {config.run.rounds}: {shown}", flush=True)

    # In deployment, a client that does not answer in time counts as failed; in a simulation it may wait for a worker.
    arrived = reply_event(grid)
    timeouts = None if arrived else ReplyTimeout(config.replies.reply_timeout_s)
    run_with(FlowerGrid(grid, timeouts, arrived=arrived), config, print_round)
