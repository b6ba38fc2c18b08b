"""The client side of the Flower app: wiring only."""

import tempfile
from pathlib import Path

from flwr.client import Client, ClientApp
from flwr.common import Context

from clients.client import ClientContext, SelectionClient
from clients.pooled import PooledClient
from clients.state import STATE_FOLDER, StateStore
from simulation.experiments.configuration import AppConfig, resolve_run_config


def make_client(config: AppConfig, context: Context, *, pooled: bool = False) -> Client:
    """The client of one message, its residual in the state folder; `pooled` clients can answer for one another."""
    base = Path(config.records.state_dir or tempfile.gettempdir()) / STATE_FOLDER
    client_context = ClientContext(
        client=int(context.node_config["partition-id"]),
        **config.groups(),
        store=StateStore(base, begins_anew=not pooled),
    )
    return (PooledClient if pooled else SelectionClient)(client_context).to_client()


def client_fn(context: Context) -> Client:
    """Build the client from Flower's run and node configuration: what the client has in the latter goes before."""
    return make_client(resolve_run_config(context.run_config, context.node_config), context)


app = ClientApp(client_fn=client_fn)
