"""Flower's ServerApp: the server of a run, built from Flower's run configuration."""

from typing import Any

from flwr.common import Context
from flwr.server import ServerAppComponents

from fedsel_app.records.run_folder import describe
from simulation.experiments.configuration import resolve_run_config
from simulation.flower_internals.server_app import DeployedServerApp
from simulation.wiring.server import make_server


def server_fn(context: Context) -> ServerAppComponents:
    """Build the server; each finished round is printed on one line."""
    config = resolve_run_config(context.run_config)

    def print_round(row: dict[str, Any]) -> None:
        shown = describe(row, measured=config.network.links == "measured")
        print(f"round {row['round']} of {config.run.rounds}: {shown}", flush=True)

    return make_server(config, print_round, deployed=app.deployed)


app = DeployedServerApp(server_fn=server_fn)
