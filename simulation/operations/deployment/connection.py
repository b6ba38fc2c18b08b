"""Check of the connection from a machine to its server, before Flower connects. It says what is wrong, and what to do.

Flower itself retries without a message, or ends with a message that does not say what to do.
"""

import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simulation.operations.machines.machine import HERE_RELEASE, Machine, address

TIMEOUT_S = 5.0
NOT_NOW, OTHER_NAME = (9, 10), (62, 64)
"""OpenSSL's codes for what is wrong with a certificate. Any other code means that the certificate is not trusted."""


@dataclass(frozen=True)
class Obstacle:
    """Reason why a machine cannot connect to its server.

    Attributes
    ----------
    kind : release, name, port, clock, certificate or program
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


def refusal(machine: Machine) -> str:
    """What to do if the server refuses this client. Flower does not say why."""
    return (
        f"{machine.server} refuses {machine.name}. Either it does not know the client's key, because the client was "
        f"revoked or the server's folder is older than this one: copy clients/{machine.name}.pub to the server's "
        "folder. Or it counts the client as connected: within a minute after a restart that passes, and otherwise this "
        f"folder is a copy. Or the clock of this machine ({_now()}) is wrong: set both clocks by NTP."
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
