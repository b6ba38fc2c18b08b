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
NOT_NOW = (9, 10)
"""OpenSSL's codes for a certificate that is not valid at the time of this machine's clock."""


@dataclass(frozen=True)
class Obstacle:
    """Reason why a machine cannot connect to its server.

    Attributes
    ----------
    sentence : what is wrong, and what to do
    passing : whether it can be resolved without a change on this machine, so that it makes sense to try again
    """

    sentence: str
    passing: bool = True


def obstacle(machine: Machine, port: int, certificate: Path) -> Obstacle | None:
    """Find why this machine cannot connect to a port of its server, which must have this certificate.

    None if it can connect.
    """
    if (wrong := other_release(machine)) is not None:
        return wrong
    at, trusting = address(machine.server, port), ssl.create_default_context(cafile=certificate)
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    try:
        with socket.create_connection((machine.server, port), timeout=TIMEOUT_S) as connection:
            trusting.wrap_socket(connection, server_hostname=machine.server).close()
    except ssl.SSLCertVerificationError as error:
        return Obstacle(
            f"{at} is not trusted ({error.verify_message}). This folder and the server's must come from the same "
            "`fedsel provision`, with this name, and the clocks of both machines must be right.",
            passing=error.verify_code in NOT_NOW,
        )
    except OSError as error:
        return Obstacle(
            f"{at} does not answer ({error}): `fedsel start server` does not run there, or a firewall is in between."
        )
    return None


def other_release(machine: Machine) -> Obstacle | None:
    """Obstacle if this machine's release of Flower differs from the federation's; None if they are the same."""
    if machine.flower == HERE_RELEASE:
        return None
    return Obstacle(
        f"This federation was provisioned for Flower {machine.flower}, but this machine has Flower {HERE_RELEASE}. "
        f"Server and clients need the same release: pip install 'flwr[simulation]=={machine.flower}.*'",
        passing=False,
    )


def refusal(machine: Machine) -> str:
    """What to do if the server refuses this client. Flower does not say why."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"{machine.server} refuses {machine.name}. Either it does not know the client's key, because the client was "
        f"revoked or the server's folder is older than this one: copy clients/{machine.name}.pub to the server's "
        "folder. Or it counts the client as connected: within a minute after a restart that passes, and otherwise this "
        f"folder is a copy. Or the clock of this machine ({now}) is wrong: set both clocks by NTP."
    )
