"""Flower's ClientApp: the client of one message, built from Flower's run and node configuration."""

from flwr.client import Client, ClientApp
from flwr.common import Context

from simulation.experiments.configuration import resolve_run_config
from simulation.wiring.client import make_client


def client_fn(context: Context) -> Client:
    """Build the client; its node configuration takes precedence over the run's."""
    return make_client(resolve_run_config(context.run_config, context.node_config), context)


app = ClientApp(client_fn=client_fn)
