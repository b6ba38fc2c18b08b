"""Machine of a federation, as `machine.toml` in its folder describes it."""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from fedsel_app.config import GROUPS, ConfigError, Value, require
from fedsel_app.records.files import write_text
from fedsel_app.wiring.client_settings import ALLOWED, CLIENT_SETTINGS
from simulation.operations.guard.transport import ANYWHERE, CONTROL_OVER_GRPC, FLEET_OVER_GRPC, RELEASE, Endpoints
from simulation.operations.machines.private_files import read_file

FILE = "machine.toml"
ROLES = ("server", "client", "admin")
HERE_RELEASE = ".".join(map(str, RELEASE))
"""Release of Flower that is installed here, as `flower` in machine.toml."""
LAST_PORT, MOST_CLIENTS = 65535, 10**6
RELEASES = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
"""Part of a host name between two points."""
HOST = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*(?!\d+\Z){LABEL}")


@dataclass(frozen=True)
class Machine:
    """A machine of a federation. Building one checks its values, and raises ConfigError for a wrong one.

    Attributes
    ----------
    role : "server", "client" or "admin"
    server : host name or IP address of the server, as the other machines use it
    port : the server's port for clients
    flower : release of Flower that all machines of the federation must have, such as "1.36"
    clients : number of clients when `machine.toml` was written
    client : number of this client, which is also its partition id; -1 for the server and the admin
    settings : the client's own settings (`CLIENT_SETTINGS`, `allow-code`). They take precedence over the server's.
    """

    role: str
    server: str
    port: int
    flower: str
    clients: int
    client: int = -1
    settings: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        last = LAST_PORT - FLEET_OVER_GRPC
        require(self.role in ROLES, "role", f"one of {', '.join(ROLES)}", self.role)
        require(is_host(self.server), "server", "a host name or an IP address", self.server)
        require(1 <= self.port <= last, "port", f"from 1 to {last}", self.port)
        require(bool(RELEASES.fullmatch(self.flower)), "flower", "a release such as 1.36", self.flower)
        require(1 <= self.clients <= MOST_CLIENTS, "clients", f"from 1 to {MOST_CLIENTS}", self.clients)
        if self.role == "client":
            require(0 <= self.client < self.clients, "client", f"from 0 to {self.clients - 1}", self.client)
        else:
            require(self.client == -1, "client", f"absent for {self.role}", self.client)
        _check_settings(self)

    @property
    def name(self) -> str:
        """Name of the machine, such as client-0, server or admin."""
        return f"client-{self.client}" if self.role == "client" else self.role

    @property
    def control_port(self) -> int:
        """The server's port for `flwr`: the port after `port`, or `port` itself where Flower serves both over HTTP."""
        return self.port + FLEET_OVER_GRPC

    @property
    def fleet(self) -> str:
        """Address of the server for clients."""
        return address(self.server, self.port)

    @property
    def control(self) -> str:
        """Address of the server for the admin."""
        return address(self.server, self.control_port)

    def endpoints(self, free_port: int) -> Endpoints:
        """Ports on which the server listens. `free_port` is for an API that only the server's own machine uses."""
        if not FLEET_OVER_GRPC:
            return Endpoints(runtime=self.port, host=ANYWHERE)
        runtime = free_port if CONTROL_OVER_GRPC else self.control_port
        return Endpoints(self.port, self.control_port, runtime, ANYWHERE, control_host=ANYWHERE)


def is_host(text: str) -> bool:
    """True if the text is a host name or an IP address, which need no quotes in any file."""
    try:
        # An address with a zone, such as fe80::1%eth0, means something on its own machine only.
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return HOST.fullmatch(text) is not None


def address(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_machine(folder: Path, *roles: str) -> Machine:
    """Read `folder`/machine.toml.

    Raises ConfigError if the file is missing or damaged, or the machine's role is not one of `roles`.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        raise ConfigError(
            f"{folder} is not the folder of a machine: it has no {FILE}. `fedsel provision` makes such folders."
        )
    content = read_file(path).decode(errors="replace")
    try:
        machine = _checked(tomllib.loads(content))
    except ValueError as error:
        again = "Copy the folder again from where it was provisioned."
        raise ConfigError(f"{path} is damaged: {str(error).removesuffix('.')}. {again}") from error
    if machine.role not in roles:
        needed = " or ".join(roles)
        raise ConfigError(f"{folder} is the folder of {machine.name}, but this command needs the folder of {needed}.")
    return machine


def machine_toml(machine: Machine) -> str:
    """Content of the machine's `machine.toml`."""
    values = {**asdict(machine), "settings": dict(machine.settings)}
    if machine.role != "client":
        del values["client"]
    return tomli_w.dumps(values)


def write_machine(folder: Path, machine: Machine) -> None:
    """Write `folder`/machine.toml. Raises OSError on failure."""
    write_text(folder / FILE, machine_toml(machine))


def with_settings(machine: Machine, added: Mapping[str, Value]) -> Machine:
    """Add settings of a client to its machine. Those of data of another kind are forgotten with its old path.

    Raises ConfigError if a client cannot have one of the settings of its own, or not with this value, or the machine is
    not a client.
    """
    settings = dict(machine.settings)
    if "data-path" in added and added.get("data") != settings.get("data"):
        settings = {key: value for key, value in settings.items() if key not in ("data", "data-arguments")}
    return replace(machine, settings={**settings, **added}) if added else machine


def _check_settings(machine: Machine) -> None:
    if not machine.settings:
        return
    if machine.role != "client":
        named = ", ".join(sorted(machine.settings))
        raise ConfigError(f"{machine.name} cannot have {named}: only a client has its own settings.")
    allowed = (*CLIENT_SETTINGS, ALLOWED)
    if foreign := machine.settings.keys() - {*allowed}:
        raise ConfigError(
            f"A client cannot have {', '.join(sorted(foreign))} of its own. It can have {', '.join(allowed)}."
        )
    entries = {entry.key: entry for group in GROUPS.values() for entry in group.entries()}
    for key, value in machine.settings.items():
        if key == ALLOWED:
            require(isinstance(value, str), key, "text", value)
        else:
            entries[key].check(value)


def _checked(values: Mapping[str, Any]) -> Machine:
    kinds = {"role": str, "server": str, "port": int, "flower": str, "clients": int, "client": int, "settings": dict}
    wrong = {key for key in values if key not in kinds or type(values[key]) is not kinds[key]}
    wrong |= kinds.keys() - values.keys() - {"client", "settings"}
    if wrong:
        raise ConfigError(f"it is wrong at {', '.join(sorted(wrong))}")
    return Machine(**values)
