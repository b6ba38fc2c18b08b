"""Local deployment: one SuperLink and several SuperNodes as separate processes on this machine."""

import atexit
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from simulation.engines import processes
from simulation.engines.starter import Starter
from simulation.engines.this_process import exit_on_signals, signals_deferred
from simulation.operations.deployment.flower_cli import DeploymentError, environment
from simulation.operations.guard.app_signature import TRUSTED, sign_app
from simulation.operations.guard.control_account import keep_token
from simulation.operations.guard.transport import (
    HERE,
    SUPERLINK_MODULE,
    SUPERNODE_MODULE,
    Endpoints,
    connection_toml,
    free_ports,
    superlink_arguments,
    supernode_arguments,
)
from simulation.operations.machines.folders import (
    SIGNING,
    FederationFolders,
    client_numbers,
    make_federation,
    share_identities,
    share_signature,
)
from simulation.operations.machines.keys import signing_key
from simulation.operations.machines.private_files import held_folder

START_TIMEOUT_S = 90.0
START_TIMEOUT_PER_SUPERNODE_S = 10.0
GRACE_S = 10.0
POLL_S = 0.2
SUPERLINK = "superlink"
"""Name of the SuperLink's process and of its FLWR_HOME in the deployment's folder."""
FEDERATION = "federation"
"""Folder in the deployment's with the keys for TLS and for the authentication of SuperNodes."""


class Deployment:
    """Deployment: a SuperLink and its SuperNodes as separate processes, which run while the block is active.

    The processes run in ``folder/work``, so paths in the run configuration must be absolute. They end with the block,
    after Ctrl-C and after any signal to this process (SIGKILL included), even during the start.

    Parameters
    ----------
    folder : folder for the logs, for each process's FLWR_HOME and for the configuration of `flwr`
    node_configs : node configuration of each SuperNode, in Flower's form: "partition-id=0 num-partitions=3"
    app : folder of the only app that the SuperNodes import, as it is when they start. By default they import any app.

    Attributes
    ----------
    flwr_home : FLWR_HOME of the SuperLink and of `flwr`, with the admin's token. Its connection `CONNECTION` leads
        to this SuperLink.
    logs : folder of ``superlink.log``, ``supernode-0.log`` and so on
    fleet : address of the SuperLink for SuperNodes, once the block is entered
    federation : folders with the keys, which are made if they do not exist
    """

    def __init__(self, folder: Path, node_configs: list[str], *, app: Path | None = None) -> None:
        self.folder = folder.resolve()
        self.flwr_home = self.folder / SUPERLINK
        self.logs = self.folder / "logs"
        self.fleet = ""
        self.federation = FederationFolders(self.folder / FEDERATION)
        self._app = app
        self._node_configs = node_configs
        self._token = secrets.token_hex(8)
        self._children: list[processes.Child] = []
        self._held = ExitStack()

    def __enter__(self) -> Self:
        atexit.register(self.stop)
        try:
            self._held.enter_context(exit_on_signals())
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
        with self._held, signals_deferred():
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
        if client_numbers(self.federation.server) != list(range(clients)):
            shutil.rmtree(self.federation.folder, ignore_errors=True)
            make_federation(self.federation.folder, [HERE], clients, at.fleet_port)
        signing = self.federation.admin / SIGNING
        if self._app is None:
            signing_key(signing)
            share_identities(self.federation)
        else:
            sign_app(self._app, signing, signing_key(signing))
            share_signature(self.federation)
        server, address = self.federation.server, f"{HERE}:{at.control_port}"
        (self.flwr_home / "config.toml").write_text(connection_toml(address, self.federation.certificate))
        keep_token(self.flwr_home, address, (self.federation.admin / "token").read_text())
        self._spawn(SUPERLINK, SUPERLINK_MODULE, [str(server), *superlink_arguments(server), *at.arguments])
        self._await(SUPERLINK, lambda: all(_reachable(port) for port in at.ports), START_TIMEOUT_S)
        for index, node_config in enumerate(self._node_configs):
            client = self.federation.client(index)
            trusted = None if self._app is None else client / TRUSTED
            arguments = supernode_arguments(self.fleet, node_config, client, trusted)
            self._spawn(f"supernode-{index}", SUPERNODE_MODULE, [*arguments, "--host", HERE])
        deadline = time.monotonic() + START_TIMEOUT_S + START_TIMEOUT_PER_SUPERNODE_S * clients
        for child in self._children[1:]:
            self._await(child.name, partial(connected, child.log), deadline - time.monotonic())

    def _spawn(self, name: str, module: str, arguments: list[str]) -> None:
        with signals_deferred():
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
            if time.monotonic() > deadline:
                raise DeploymentError(f"{name} was not ready in time. {_end_of(self.logs / f'{name}.log')}")
            time.sleep(POLL_S)


def connected(log: Path) -> bool:
    """Tell whether the SuperNode that writes `log` is connected to the SuperLink."""
    return "SuperNode ID:" in _text(log)


def _reachable(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HERE, port), timeout=1.0):
        return True
    return False


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _end_of(log: Path) -> str:
    return f"The end of its log {log}:\n{_text(log)[-2000:]}"
