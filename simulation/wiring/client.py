"""Client of a run: built anew for each message from the run's settings and the node's partition id."""

from pathlib import Path

from clients.client import ClientContext, SelectionClient
from clients.state import STATE_FOLDER, StateStore, user_state_folder
from simulation.experiments.configuration import AppConfig


def selection_client(config: AppConfig, client: int, *, simulated: bool = True) -> SelectionClient:
    """Build the client of a partition id.

    Its state lies in `state-dir`, or in the user's own folder if that is empty; see `clients.state`.
    """
    base = Path(config.records.state_dir or user_state_folder()) / STATE_FOLDER
    store = StateStore(base, begins_anew=not simulated)
    return SelectionClient(ClientContext(client=client, **config.groups(), store=store))
