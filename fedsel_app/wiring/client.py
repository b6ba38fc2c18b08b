"""Client of a run: a new object for each message, built from the run's settings and the node's partition id."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flwr.app import ConfigRecord, Message
from flwr.clientapp import ClientApp
from flwr.common import Context

from clients.client import ClientContext, SelectionClient
from clients.flower_client import ClientOf, answer
from clients.state import STATE_FOLDER, StateStore, user_state_folder
from fedsel_app.caches import of_a_run
from fedsel_app.config import ConfigError, SharedSettings
from fedsel_app.config.data import OwnDataConfig
from fedsel_app.imports import AfterImports
from fedsel_app.secure_sums.statement import run_name
from fedsel_app.wiring.client_settings import validate_deployment

if TYPE_CHECKING:
    from clients.masking import Masks

MOST_IDS = 1 << 64
MEMORY = "fedsel.masks"
"""Record of Flower's state of a client with what its masks need from one message to the next."""


def client_of(settings: SharedSettings, context: Context, *, pooled: bool = False) -> ClientOf:
    """Builder of the clients that may answer a message: the node's own client; if `pooled`, all clients.

    Only a simulation may be `pooled`: a process has the data and the states of all its clients.

    A client's state is stored in `state-dir`, or in the user's own folder if that is empty; see `clients.state`.

    Raises ConfigError if the node configuration lacks the partition id. The builder raises it if it is not `pooled` and
    is asked for another client.
    """
    if "partition-id" not in context.node_config:
        raise ConfigError(
            "The node configuration lacks 'partition-id', by which a server knows a client: add partition-id=0 to "
            "the --node-config of the first, 1 to that of the second, and so on."
        )
    partition = int(context.node_config["partition-id"])
    # No other client knows both, so no other server can name what this client was stated.
    deployed = "" if pooled else f"{context.run_id % MOST_IDS:x}x{context.node_id % MOST_IDS:x}"
    own_arguments = "data-arguments" in context.node_config or "data" in context.node_config
    builder = cache(partial(client_builder, settings, deployed, own_arguments=own_arguments))

    def build(client: int | None) -> SelectionClient:
        if client not in (None, partition) and not pooled:
            raise ConfigError(f"Client {partition} answers for itself alone, and was asked for client {client}.")
        built = builder()(partition if client is None else client)
        return built if pooled or not settings.privacy.masked else built.masking(masks_of(settings, context, partition))

    return build


def client_builder(
    settings: SharedSettings, deployed: str = "", *, own_arguments: bool = True
) -> Callable[[int], SelectionClient]:
    """Builder of the client of a partition id. Its state is stored in `state-dir`, or in the user's own folder.

    What the server states of a client's own data is kept under the name `deployed`; empty in a simulation.
    `own_arguments` is False if the server has set the `data-arguments`.

    Raises ConfigError for settings of simulations alone, if the client is `deployed`.
    """
    if deployed:
        validate_deployment(settings)
    base = Path(settings.records.state_dir or user_state_folder()) / STATE_FOLDER
    store = StateStore(base, begins_anew=bool(deployed))
    shared = settings.groups() | {"store": store}
    if deployed and settings.partition.partition == "own":
        from clients.own_data import OwnDataClient, OwnDataContext

        data = replace(OwnDataConfig.of(settings.data), own_arguments=own_arguments)
        stated = store.of_run(deployed)
        return lambda client: OwnDataClient(OwnDataContext(client=client, stated=stated, **shared | {"data": data}))
    context = ClientContext(client=0, **shared)
    return lambda client: SelectionClient(context.of(client))


def masks_of(settings: SharedSettings, context: Context, client: int) -> "Masks":
    """Masks of a deployed client, whose memory is the state that Flower keeps for it in a run.

    Raises ConfigError if the client has no identity, or the identities of the others are not signed.
    """
    if not settings.enrolment.identity_dir:
        raise ConfigError(
            "Start this client with `fedsel start`, from the folder that `fedsel provision` made: with 'secure-sums' a "
            "client needs its key and the identities of the others, and 'identity-dir' in its --node-config names the "
            "folder with them."
        )
    from clients.masking import Masks, read_identity

    identity = read_identity(Path(settings.enrolment.identity_dir), client)
    memory = cast(Any, context.state.setdefault(MEMORY, ConfigRecord()))
    return Masks(identity, run_name(context.run_id), settings.privacy.least_cohort, memory)


def make_client_app(settings: SharedSettings, *, pooled: bool = False) -> ClientApp:
    """Build a ClientApp of fedsel's own clients, for a run in this process and its workers; see `client_of`."""
    app, handler = ClientApp(), AfterImports(partial(_answer, SharedSettings(**settings.groups()), pooled=pooled))
    for register in (app.query, app.train, app.evaluate):
        register()(handler)
    return app


def _answer(settings: SharedSettings, message: Message, context: Context, *, pooled: bool) -> Message:
    with of_a_run(context.run_id):
        return answer(message, client_of(settings, context, pooled=pooled))
