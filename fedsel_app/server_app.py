"""Flower's ServerApp: the server of a run, built from Flower's run configuration."""

import logging
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsel_app.config import ConfigError
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.files import MachineFault, RunFailed
from fedsel_app.records.run_folder import describe_round
from fedsel_app.wiring.configuration import AppConfig, resolve_run_config
from fedsel_app.wiring.server import run_with
from fedsel_app.wiring.validation import validate_simulation
from strategies.round.flower_grid import FlowerGrid
from strategies.round.simulated_grid import arrivals

app = ServerApp()


class SentenceAlone(logging.Filter):
    """Filter of Flower's log that keeps only the sentence of a ConfigError, a failed run or a failing machine, without
    traceback and exit code.
    """

    _said = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove the traceback of such an error from its record, and drop the notice on the exit that follows."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConfigError | RunFailed | MachineFault):
            record.msg, record.args, record.exc_info = str(error), (), None
            self._said = True
        return not (self._said and record.getMessage().startswith("Exit Code:"))


logging.getLogger("flwr").addFilter(SentenceAlone())


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds, and print one line for each finished round."""
    config = resolve_run_config(context.run_config)

    def print_round(row: dict[str, Any]) -> None:
        shown = describe_round(row, measured=config.network.links == "measured")
        print(f"round {row['round']} of {config.run.rounds}: {shown}", flush=True)

    run_with(federation_of(grid, config), config, print_round)


def federation_of(grid: Grid, config: AppConfig) -> FlowerGrid:
    """The federation behind Flower's grid.

    The nodes of a simulation carry all clients of the run. Its grid is in this process, so that no client can pretend
    to be simulated. In deployment every node is one client, which has failed if it does not answer in time; in a
    simulation it may wait for a worker.

    Raises ConfigError if the run is simulated and cannot be carried out.
    """
    arrived = arrivals(grid)
    if arrived is None:
        return FlowerGrid(grid, ReplyTimeout(config.replies.reply_timeout_s))
    from strategies.round.simulated_grid import SimulatedGrid

    validate_simulation(config, config.execution, config.enrolment)
    measured = config.network.links == "measured"
    return SimulatedGrid(grid, config.run.clients, pools_training=not measured, arrived=arrived)
