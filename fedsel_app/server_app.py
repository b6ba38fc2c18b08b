"""Flower's ServerApp: the server of a run, built from Flower's run configuration."""

from typing import Any

from flwr.common import Context
from flwr.server import ServerAppComponents

from fedsel_app.records.run_folder import describe
from simulation.deployment.flower_internals import DeployedServerApp
from simulation.experiments.configuration import resolve_run_config
from simulation.wiring.server import make_server


def log_round(row: dict[str, Any]) -> None:
    """Print the record of a round on one line."""
    print(f"round {row['round']}: {describe(row)}", flush=True)


def server_fn(context: Context) -> ServerAppComponents:
    """Build the server; each finished round is printed on one line."""
    return make_server(resolve_run_config(context.run_config), log_round, deployed=app.deployed)


app = DeployedServerApp(server_fn=server_fn)
