"""Client of a run: built anew for each message from the run's settings and the node's partition id."""

from pathlib import Path

from flwr.client import Client
from flwr.common import Context

from clients.client import ClientContext, SelectionClient
from clients.pooled import PooledClient
from clients.state import STATE_FOLDER, StateStore, user_state_folder
from fedsel_app.config import ConfigError
from simulation.experiments.configuration import AppConfig


def make_client(config: AppConfig, context: Context, *, pooled: bool = False) -> Client:
    """Build the client that answers one message.

    Its state lies in `state-dir`, or in the user's own folder if that is empty; see `clients.state`. A `pooled` client
    can answer for other clients too; see `clients.pooled`.

    Raises
    ------
    ConfigError
        Where the node configuration does not say which client this is.
    """
    if "partition-id" not in context.node_config:
        raise ConfigError(
            "The node configuration lacks 'partition-id', by which a server knows a client: add partition-id=0 to "
            "the --node-config of the first, 1 to that of the second, and so on."
        )
    base = Path(config.records.state_dir or user_state_folder()) / STATE_FOLDER
    client_context = ClientContext(
        client=int(context.node_config["partition-id"]),
        **config.groups(),
        store=StateStore(base, begins_anew=not pooled),
    )
    return (PooledClient if pooled else SelectionClient)(client_context).to_client()
