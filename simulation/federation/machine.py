"""Machine of a federation: what `machine.toml` in its folder says, and what the machine's owner has added there."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedsel_app.config import ConfigError, Value
from simulation.experiments.node_configuration import ALLOWED, CLIENT_SETTINGS
from simulation.flower_internals.transport import ANYWHERE, CONTROL_OVER_GRPC, FLEET_OVER_GRPC, RELEASE, Endpoints

FILE = "machine.toml"
ROLES = ("server", "client", "admin")
HERE_RELEASE = ".".join(map(str, RELEASE))
"""Release of Flower that is installed here, as `flower` in machine.toml."""


@dataclass(frozen=True)
class Machine:
    """A machine of a federation.

    Attributes
    ----------
    role : str
        "server", "client" or "admin".
    server : str
        Name or IP address under which the others reach the server.
    port : int
        The server's port for clients. `flwr` reaches it at `control_port`.
    flower : str
        Release of Flower that the federation was provisioned for, such as "1.36".
    clients : int
        Number of clients when the folder was made.
    client : int
        A client's number, which is the part of the data that it has; -1 for the others.
    settings : mapping
        Settings of a client's own (`CLIENT_SETTINGS`, `allow-code`), which go before the server's.
    """

    role: str
    server: str
    port: int
    flower: str
    clients: int
    client: int = -1
    settings: Mapping[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the machine: client-0, server or admin."""
        return f"client-{self.client}" if self.role == "client" else self.role

    @property
    def control_port(self) -> int:
        """The server's port for `flwr`: the clients' where Flower serves both over HTTP, or the next one."""
        return self.port + FLEET_OVER_GRPC

    @property
    def fleet(self) -> str:
        """Address at which clients reach the server."""
        return address(self.server, self.port)

    @property
    def control(self) -> str:
        """Address at which the admin reaches the server."""
        return address(self.server, self.control_port)

    def endpoints(self, free_port: int) -> Endpoints:
        """Addresses at which the server listens; `free_port` is for what no other machine needs to reach."""
        if not FLEET_OVER_GRPC:
            return Endpoints(runtime=self.port, host=ANYWHERE)
        runtime = free_port if CONTROL_OVER_GRPC else self.control_port
        return Endpoints(self.port, self.control_port, runtime, ANYWHERE, control_host=ANYWHERE)


def address(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_machine(folder: Path, *roles: str) -> Machine:
    """Read `folder`/machine.toml.

    Raises
    ------
    ConfigError
        If it is absent, cannot be read, or is of a machine with another role than `roles`.
    """
    path = folder / FILE
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder} is no folder of a machine: there is no {FILE}. `fedsel provision` makes such folders."
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    machine = _checked(path, values)
    if machine.role not in roles:
        raise ConfigError(f"{folder} is the folder of {machine.name}; this command takes that of {' or '.join(roles)}.")
    return machine


def write_machine(folder: Path, machine: Machine) -> None:
    """Write `folder`/machine.toml. Raises OSError if it cannot be written."""
    values: dict[str, Any] = {
        "role": machine.role,
        "server": machine.server,
        "port": machine.port,
        "flower": machine.flower,
        "clients": machine.clients,
    }
    if machine.role == "client":
        values["client"] = machine.client
    part = folder / f"{FILE}.part"
    part.write_text(tomli_w.dumps(values | {"settings": dict(machine.settings)}), encoding="utf-8")
    part.replace(folder / FILE)


def with_settings(machine: Machine, added: Mapping[str, Value]) -> Machine:
    """The client's machine with these settings of its own added.

    Raises
    ------
    ConfigError
        For a setting that is not a single client's, or on another machine than a client's.
    """
    if not added:
        return machine
    if machine.role != "client":
        raise ConfigError(f"{', '.join(sorted(added))}: only a client has data and settings of its own.")
    allowed = (*CLIENT_SETTINGS, ALLOWED)
    if foreign := added.keys() - {*allowed}:
        raise ConfigError(f"{', '.join(sorted(foreign))}: a client's own settings are {', '.join(allowed)}.")
    return replace(machine, settings={**machine.settings, **added})


def _checked(path: Path, values: Mapping[str, Any]) -> Machine:
    kinds = {"role": str, "server": str, "port": int, "flower": str, "clients": int, "client": int, "settings": dict}
    wrong = [key for key in values if key not in kinds or type(values[key]) is not kinds[key]]
    absent = kinds.keys() - values.keys() - {"client", "settings"}
    if wrong or absent or values["role"] not in ROLES:
        named = ", ".join(sorted({*wrong, *absent} or {"role"}))
        raise ConfigError(f"{path} is damaged, at {named}. Copy the folder again from where it was provisioned.")
    return with_settings(Machine(**{**values, "settings": {}}), values.get("settings", {}))
