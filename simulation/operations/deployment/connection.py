"""Check of the connection from a machine to its server, before Flower connects. It says what is wrong, and what to do.

Flower itself retries without a message, or ends with a message that does not say what to do.
"""

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simulation.operations.guard.fleet_connection import AHEAD_S, BEHIND_S, WRONG_CLOCK, why_refused
from simulation.operations.machines.machine import HERE_RELEASE, Machine, address

TIMEOUT_S = 5.0
NOT_NOW, OTHER_NAME = (9, 10), (62, 64)
"""OpenSSL's codes for what is wrong with a certificate. Any other code means that the certificate is not trusted."""


@dataclass(frozen=True)
class Obstacle:
    """Reason why a machine cannot connect to its server.

    Attributes
    ----------
    kind : release, name, port, clock, certificate, key, copy or program
    sentence : what is wrong, and what to do
    passing : whether it can be resolved without a change on this machine, so that it makes sense to try again
    """

    kind: str
    sentence: str
    passing: bool = True


def obstacle(machine: Machine, port: int, certificate: Path) -> Obstacle | None:
    """Find why this machine cannot connect to a port of its server, which must have this certificate.

    None if it can connect.
    """
    if (wrong := other_release(machine)) is not None:
        return wrong
    host, at = machine.server, address(machine.server, port)
    try:
        connection = socket.create_connection((host, port), timeout=TIMEOUT_S)
    except socket.gaierror:
        return Obstacle(
            "name",
            f"The name {host} cannot be resolved on this machine. Add it to the DNS or to /etc/hosts, or provision "
            "with an address that this machine can resolve.",
        )
    except OSError as error:
        return Obstacle(
            "port",
            f"{at} does not answer ({error}): `fedsel start server` does not run there, or a firewall is in between.",
        )
    with connection:
        return _distrust(machine, port, connection, certificate)


def client_obstacle(machine: Machine, certificate: Path, key: Path) -> Obstacle | None:
    """Find why the client with this private key cannot connect to its server, which must know the public key."""
    if (wrong := obstacle(machine, machine.port, certificate)) is not None:
        return wrong
    try:
        words = why_refused(machine.fleet, certificate, key)
    except ConnectionError as error:
        return Obstacle(
            "program",
            f"The program at {machine.fleet} does not answer like a server of Flower ({error}). If this machine has a "
            f"proxy, add {machine.server} to the variable no_proxy.",
        )
    return refused_by_server(machine, words) if words else None


def other_release(machine: Machine) -> Obstacle | None:
    """Obstacle if this machine's release of Flower differs from the federation's; None if they are the same."""
    if machine.flower == HERE_RELEASE:
        return None
    return Obstacle(
        "release",
        f"This federation was provisioned for Flower {machine.flower}, but this machine has Flower {HERE_RELEASE}. "
        f"Server and clients need the same release: pip install 'flwr[simulation]=={machine.flower}.*'",
        passing=False,
    )


def refused_by_server(machine: Machine, words: str) -> Obstacle:
    """The obstacle that corresponds to the `words` with which Flower's server refused this client."""
    if words == WRONG_CLOCK:
        return Obstacle(
            "clock",
            f"The clock of this machine ({_now()}) is more than {AHEAD_S:.0f} s ahead of the clock of "
            f"{machine.server}, or more than {BEHIND_S:.0f} s behind it. Set both clocks by NTP.",
        )
    return Obstacle(
        "key",
        f"{machine.server} does not know the key of {machine.name}: the client was revoked, or the server's folder is "
        f"older than this one. To admit the client, copy its clients/{machine.name}.pub to the server's folder.",
    )


def key_in_use(machine: Machine) -> Obstacle:
    """The obstacle of a client whose key the server knows, and which the server still refuses."""
    return Obstacle(
        "copy",
        f"{machine.server} counts {machine.name} as connected. If this client or the server ended less than a minute "
        "ago, the client is admitted soon. Otherwise another client has its key, so this folder or its file key is a "
        "copy: end the other client, or make a folder of its own for this machine with `fedsel provision --add 1`.",
    )


def _distrust(machine: Machine, port: int, connection: socket.socket, certificate: Path) -> Obstacle | None:
    """The obstacle in the server's certificate; None if there is none."""
    trusting = ssl.create_default_context(cafile=certificate)
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    try:
        trusting.wrap_socket(connection, server_hostname=machine.server).close()
    except ssl.SSLCertVerificationError as error:
        return _distrusted(machine, error.verify_code)
    except OSError as error:
        at = address(machine.server, port)
        return Obstacle("program", f"{at} does not use TLS ({error}): another program listens there.")
    return None


def _distrusted(machine: Machine, code: int) -> Obstacle:
    if code in NOT_NOW:
        return Obstacle(
            "clock",
            f"The certificate of {machine.server} is not valid now by the clock of this machine ({_now()}). Set the "
            "clock by NTP. If the clock is right, make the next certificate with `fedsel provision --renew`.",
        )
    if code in OTHER_NAME:
        return Obstacle(
            "certificate",
            f"The server's certificate is not valid for the name {machine.server}. Add --server {machine.server} when "
            "you provision, or set `server` in machine.toml to a name that `fedsel provision` got.",
            passing=False,
        )
    return Obstacle(
        "certificate",
        f"{machine.server} has the certificate of another federation. This folder and the server's folder must come "
        "from the same `fedsel provision`.",
        passing=False,
    )


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
