"""Real processes over gRPC: one SuperLink and N SuperNodes on this machine."""

import atexit
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from fedsel_app.config import ConfigError, Value
from simulation import processes
from simulation.submit import DeploymentError, RunResult, environment, submit, to_toml, tool

__all__ = [
    "CONNECTION",
    "Deployment",
    "DeploymentError",
    "RunResult",
    "app_folder",
    "connection_toml",
    "equivalent_commands",
    "free_ports",
    "submit",
]

CONNECTION = "fedsel"
"""The name that `Deployment` gives its SuperLink in the command line's configuration."""
START_TIMEOUT_S = 90.0
START_TIMEOUT_PER_SUPERNODE_S = 10.0
GRACE_S = 10.0
POLL_S = 0.2


class Deployment:
    """A SuperLink and its SuperNodes as processes of their own, all ended when the block is left.

    Parameters
    ----------
    folder : Path
        Where logs, each process's FLWR_HOME and the command line's configuration go.
    supernodes : int
        Number of SuperNodes.
    node_configs : list of str
        One for each SuperNode, in Flower's form: "partition-id=0 num-partitions=3".

    The processes run in ``folder/work``, so paths in the run configuration must be absolute. They end
    with the block, on Ctrl-C and on SIGTERM or SIGHUP alike, also in the middle of starting up.

    Attributes
    ----------
    flwr_home : Path
        FLWR_HOME of the command line; its connection named `CONNECTION` leads to this SuperLink.
    logs : Path
        ``superlink.log``, ``supernode-0.log`` and so on.
    """

    def __init__(self, folder: Path, supernodes: int, node_configs: list[str]) -> None:
        if supernodes < 1 or len(node_configs) != supernodes:
            raise ConfigError(
                f"A deployment needs at least one SuperNode and one node configuration for each. "
                f"Got {supernodes} SuperNodes and {len(node_configs)} node configurations."
            )
        self.folder = folder.resolve()
        self.flwr_home = self.folder / "cli"
        self.logs = self.folder / "logs"
        self._node_configs = node_configs
        self._token = secrets.token_hex(8)
        self._children: list[processes.Child] = []
        self._signals = ExitStack()

    def __enter__(self) -> Self:
        atexit.register(self.stop)
        try:
            self._signals.enter_context(processes.exit_on_signals())
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process: SuperNodes first, then the SuperLink; SIGKILL for what outlives the grace period.

        Signals wait until it is done. Raises DeploymentError if a process cannot be ended.
        """
        with self._signals, processes.signals_deferred():
            superlink, supernodes = self._children[:1], self._children[1:]
            left = processes.end(supernodes, GRACE_S) | processes.end(superlink, GRACE_S)
            self._children.clear()
            atexit.unregister(self.stop)
        if left:
            raise DeploymentError(f"These processes could not be ended: {sorted(left)}.")

    def _start(self) -> None:
        fleet, control, runtime, *node_ports = free_ports(3 + len(self._node_configs))
        for folder in (self.flwr_home, self.logs, self.folder / "work"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.flwr_home / "config.toml").write_text(connection_toml(f"127.0.0.1:{control}"))
        addresses = ["--fleet-api-address", f"127.0.0.1:{fleet}", "--control-api-address", f"127.0.0.1:{control}"]
        self._spawn("superlink", ["flower-superlink", "--insecure", *addresses, *_runtime_address(runtime)])
        self._await("superlink", lambda: all(_reachable(port) for port in (fleet, control, runtime)), START_TIMEOUT_S)
        for index, (port, node_config) in enumerate(zip(node_ports, self._node_configs, strict=True)):
            command = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{fleet}"]
            self._spawn(f"supernode-{index}", [*command, *_runtime_address(port), "--node-config", node_config])
        deadline = time.monotonic() + START_TIMEOUT_S + START_TIMEOUT_PER_SUPERNODE_S * len(node_ports)
        for child in self._children[1:]:
            self._await(child.name, partial(_connected, child.log), deadline - time.monotonic())

    def _spawn(self, name: str, command: list[str]) -> None:
        with processes.signals_deferred():
            self._children.append(
                processes.start(
                    name,
                    f"{self._token}/{name}",
                    [tool(command[0]), *command[1:]],
                    self.logs / f"{name}.log",
                    self.folder / "work",
                    environment(self.folder / name),
                )
            )

    def _await(self, name: str, ready: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            for child in self._children:
                if (code := child.process.poll()) is not None:
                    raise DeploymentError(f"{child.name} ended with exit code {code}. {_end_of(child.log)}")
            if time.monotonic() > deadline:
                raise DeploymentError(f"{name} was not ready in time. {_end_of(self.logs / f'{name}.log')}")
            time.sleep(POLL_S)


def equivalent_commands(
    node_configs: Sequence[str], run_config: Mapping[str, Value], server: str = "SERVER"
) -> list[str]:
    """The commands that do on separate machines what `Deployment` and `submit` do on this one.

    `server` is the address under which the clients reach the SuperLink's host.
    """
    switches = "FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"
    commands = [
        f"# on {server}: clients must reach port 9092; not encrypted, so only in a network that you trust",
        f"{switches} flower-superlink --insecure --fleet-api-address 0.0.0.0:9092 --control-api-address 127.0.0.1:9093",
    ]
    for index, node_config in enumerate(node_configs):
        commands += [
            f"# on client machine {index}, with the same packages installed",
            "FLWR_TELEMETRY_ENABLED=0 flower-supernode --insecure"
            f" --superlink {server}:9092 --node-config {shlex.quote(node_config)}",
        ]
    return [
        *commands,
        f"# on {server}, in a checkout, once every client is connected",
        "mkdir -p .flwr/remote",
        f"cat > .flwr/remote/config.toml <<'END'\n{connection_toml('127.0.0.1:9093')}END",
        f"cat > .flwr/remote/run-config.toml <<'END'\n{to_toml(run_config)}END",
        f"FLWR_HOME=$PWD/.flwr/remote flwr run . {CONNECTION} --stream --run-config .flwr/remote/run-config.toml",
    ]


def app_folder() -> Path:
    """The checkout, which is what Flower bundles into the app. Raises ConfigError for an installed wheel."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / "pyproject.toml").is_file():
        raise ConfigError(
            f"Flower bundles the app from its source, but there is no pyproject.toml in {folder}. "
            "Run this from a checkout installed with `pip install -e .`."
        )
    return folder


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports of 127.0.0.1 that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def connection_toml(control_address: str) -> str:
    """The command line's config.toml with one unencrypted connection, named `CONNECTION`."""
    connection = to_toml({"address": control_address, "insecure": True})
    return f"[superlink]\n{to_toml({'default': CONNECTION})}\n[superlink.{CONNECTION}]\n{connection}"


def _runtime_address(port: int) -> list[str]:
    return ["--host", "127.0.0.1", "--port", str(port)]


def _connected(log: Path) -> bool:
    return "SuperNode ID:" in _text(log)


def _reachable(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _end_of(log: Path) -> str:
    return f"The end of its log {log}:\n{_text(log)[-2000:]}"
