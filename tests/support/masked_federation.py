"""Masked deployment in this process: the clients that SuperNodes run, each with its folder, behind Flower's grid."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Message, RecordDict

from fedsel_app import flower_client
from fedsel_app.wiring.configuration import AppConfig
from simulation.operations.deployment.deployed_run import app_values
from simulation.operations.machines.folders import SIGNING, FederationFolders, make_federation, share_identities
from simulation.operations.machines.keys import signing_key
from tests.support.in_process_grid import InProcessGrid

RUN_ID = 7
Hook = Callable[[int, Message], Message | None]
"""Function of a client and a message to it, that returns the message to deliver; None: the client is lost."""


class MaskedGrid(InProcessGrid):
    """Grid of deployed clients. What they remember of a run is in their contexts, as in a SuperNode."""

    def __init__(self, folder: Path, config: AppConfig, hook: Hook = lambda client, message: message) -> None:
        self.federation = FederationFolders(folder / "federation")
        if not self.federation.folder.exists():
            make_federation(self.federation.folder, ["localhost"], config.run.clients, 9092)
            signing_key(self.federation.admin / SIGNING)
            share_identities(self.federation)
        self._values, self._state, self._hook = app_values(config), str(folder / "states"), hook
        self.run = SimpleNamespace(run_id=RUN_ID)
        super().__init__(self._answered, {client + 1: self.context(client) for client in range(config.run.clients)})

    def context(self, client: int, **own: Any) -> Context:
        """Context of a client that has just started, with settings of its owner."""
        places = {"state-dir": self._state, "identity-dir": str(self.federation.client(client))}
        places |= {"allow-code": str(self._values["model"])} if ":" in str(self._values["model"]) else {}
        node: Mapping[str, Any] = {"partition-id": client, "num-partitions": 1, **places, **own}
        values = {key: value for key, value in self._values.items() if key not in places and key != "data-path"}
        return Context(run_id=RUN_ID, node_id=client, node_config=dict(node), state=RecordDict(), run_config=values)

    def restart(self, client: int) -> None:
        """Let a client lose its memory."""
        self._contexts[client + 1] = self.context(client)

    def _answered(self, message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        delivered = self._hook(client, message)
        if delivered is None:
            raise ConnectionError("the client is lost")
        return flower_client.app(delivered, context)
