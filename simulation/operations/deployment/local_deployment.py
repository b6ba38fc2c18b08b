"""Local deployment: one SuperLink and several SuperNodes as separate processes on this machine."""

import atexit
import secrets
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from simulation.engines import processes
from simulation.engines.starter import Starter
from simulation.operations.deployment.flower_cli import DeploymentError, environment
from simulation.operations.deployment.held_folder import held_folder
from simulation.operations.guard.app_signature import TRUSTED, sign_app
from simulation.operations.guard.command_lines import (
    SUPERLINK_MODULE,
    SUPERNODE_MODULE,
    connection_toml,
    superlink_arguments,
    supernode_arguments,
)
from simulation.operations.guard.transport import HERE, Endpoints, free_ports
from simulation.operations.machines.folders import SIGNING, FederationFolders, make_federation, share_identities
from simulation.operations.machines.keys import signing_key

START_TIMEOUT_S = 90.0
START_TIMEOUT_PER_SUPERNODE_S = 10.0
GRACE_S = 10.0
REFUSED = ("CERTIFICATE_VERIFY_FAILED", "Failed to activate SuperNode", "must be registered", "generator didn't yield")
"""Words in the log of a SuperNode that the SuperLink refuses. The SuperNode's process does not end by itself then."""
POLL_S = 0.2
SUPERLINK = "superlink"
"""Name of the SuperLink's process and of its FLWR_HOME in the deployment's folder."""


class Deployment:
    """Deployment: a SuperLink and its SuperNodes as separate processes, which run while the block is active.

    The processes run in ``folder/work``, so paths in the run configuration must be absolute. They end with the block,
    after Ctrl-C and after any signal to this process (SIGKILL included), even during the start.

    Parameters
    ----------
    folder : folder for the logs, for each process's FLWR_HOME and for the configuration of `flwr`
    node_configs : node configuration of each SuperNode, in Flower's form: "partition-id=0 num-partitions=3"
    federation : folders with the keys for TLS and for the authentication of SuperNodes. The default is
        ``folder/federation``, which is made if it does not exist.
    insecure : use neither TLS nor authentication
    app : folder of the only app that the SuperNodes import, as it is when they start. By default they import any app.
    detours : addresses under which each SuperNode reaches the SuperLink, if they differ from the SuperLink's own
        address

    Attributes
    ----------
    flwr_home : FLWR_HOME of the SuperLink and of `flwr`, which finds the SuperLink's token there (see
        `control_account`). The connection `CONNECTION` in it leads to this SuperLink.
    logs : folder of ``superlink.log``, ``supernode-0.log`` and so on
    fleet : address of the SuperLink for SuperNodes, once the block is entered
    federation : the federation in use; None if `insecure`
    """

    def __init__(
        self,
        folder: Path,
        node_configs: list[str],
        federation: FederationFolders | None = None,
        *,
        insecure: bool = False,
        app: Path | None = None,
        detours: Sequence[str] = (),
    ) -> None:
        self.folder = folder.resolve()
        self.flwr_home = self.folder / SUPERLINK
        self.logs = self.folder / "logs"
        self.fleet = ""
        self.federation = federation
        self._insecure = insecure
        self._app = app
        self._detours = detours
        self._node_configs = node_configs
        self._token = secrets.token_hex(8)
        self._children: list[processes.Child] = []
        self._held = ExitStack()

    def __enter__(self) -> Self:
        atexit.register(self.stop)
        try:
            self._held.enter_context(processes.exit_on_signals())
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def running(self) -> set[int]:
        """Ids of all processes of the deployment that run."""
        return processes.running(self._children)

    def stop(self) -> None:
        """End the SuperNodes and then the SuperLink; kill each process that survives the grace period.

        Signals are deferred until this is done. Raises DeploymentError if a process cannot be ended.
        """
        with self._held, processes.signals_deferred():
            superlink, supernodes = self._children[:1], self._children[1:]
            left = processes.end(supernodes, GRACE_S) | processes.end(superlink, GRACE_S)
            self._children.clear()
            atexit.unregister(self.stop)
        if left:
            raise DeploymentError(f"These processes could not be ended: {sorted(left)}.")

    def _start(self) -> None:
        occupied = f"Another deployment is running in {self.folder}. End it first."
        self._temporary = self._held.enter_context(held_folder(self.folder, occupied))
        fleet, control, runtime = free_ports(3)
        at = Endpoints(fleet, control, runtime)
        self.fleet = f"{HERE}:{at.fleet_port}"
        for folder in (self.flwr_home, self.logs, self.folder / "work"):
            folder.mkdir(parents=True, exist_ok=True)
        self._starter = self._held.enter_context(Starter())
        clients = len(self._node_configs)
        if not self._insecure and self.federation is None:
            federation = FederationFolders(self.folder / "federation")
            exists = federation.folder.exists()
            self.federation = (
                federation if exists else make_federation(federation.folder, [HERE], clients, at.fleet_port)
            )
            signing_key(self.federation.admin / SIGNING)
            share_identities(self.federation)
        server = authority = None
        if self.federation is not None:
            self.federation.check(clients)
            server, authority = self.federation.server, self.federation.authority
        (self.flwr_home / "config.toml").write_text(connection_toml(f"{HERE}:{at.control_port}", authority))
        database = self.folder / "superlink.db"
        for left in self.folder.glob(f"{database.name}*"):
            left.unlink()
        provisioned = [] if server is None else ["--provisioned", str(server)]
        self._spawn(SUPERLINK, SUPERLINK_MODULE, [*provisioned, *superlink_arguments(server, database), *at.arguments])
        self._await(SUPERLINK, lambda: all(_reachable(port) for port in at.ports), START_TIMEOUT_S)
        trusted = None
        if self._app is not None:
            sign_app(self._app, self.flwr_home, Ed25519PrivateKey.generate())
            trusted = self.flwr_home / TRUSTED
        for index, node_config in enumerate(self._node_configs):
            reached = self._detours[index] if self._detours else self.fleet
            client = None if self.federation is None else self.federation.client(index)
            arguments = supernode_arguments(reached, node_config, client, trusted)
            self._spawn(f"supernode-{index}", SUPERNODE_MODULE, [*arguments, "--host", HERE])
        deadline = time.monotonic() + START_TIMEOUT_S + START_TIMEOUT_PER_SUPERNODE_S * clients
        for child in self._children[1:]:
            self._await(child.name, partial(connected, child.log), deadline - time.monotonic())

    def _spawn(self, name: str, module: str, arguments: list[str]) -> None:
        with processes.signals_deferred():
            self._children.append(
                self._starter.start(
                    name,
                    f"{self._token}/{name}",
                    [sys.executable, "-m", module, *arguments],
                    self.logs / f"{name}.log",
                    self.folder / "work",
                    environment(self.folder / name) | {"TMPDIR": str(self._temporary)},
                )
            )

    def _await(self, name: str, ready: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            for child in self._children:
                if (code := child.poll()) is not None:
                    raise DeploymentError(f"{child.name} ended with exit code {code}. {_end_of(child.log)}")
                if refused(child.log):
                    raise DeploymentError(f"The SuperLink refused {child.name}. {_end_of(child.log)}")
            if time.monotonic() > deadline:
                raise DeploymentError(f"{name} was not ready in time. {_end_of(self.logs / f'{name}.log')}")
            time.sleep(POLL_S)


def connected(log: Path) -> bool:
    """Tell whether the SuperNode that writes `log` is connected to the SuperLink."""
    return "SuperNode ID:" in _text(log)


def refused(log: Path) -> bool:
    """Tell whether the SuperLink refused the SuperNode that writes `log`."""
    return any(words in _text(log) for words in REFUSED)


def _reachable(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HERE, port), timeout=1.0):
        return True
    return False


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _end_of(log: Path) -> str:
    return f"The end of its log {log}:\n{_text(log)[-2000:]}"
