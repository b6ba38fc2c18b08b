"""Connection of a client to its server, tried before Flower does: what is in the way, as a sentence.

Flower itself tries again without a word, or ends with one that does not say what to do.
"""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from simulation.federation.machine import HERE_RELEASE, Machine, address
from simulation.flower_internals.fleet_connection import AHEAD_S, BEHIND_S, WRONG_CLOCK, why_refused

TIMEOUT_S = 5.0
NOT_YET, EXPIRED = 9, 10
OTHER_NAME = (62, 64)
"""OpenSSL's codes of what is wrong with a certificate; all others mean that it is not trusted."""


@dataclass(frozen=True)
class Obstacle:
    """What keeps a client from its server.

    Attributes
    ----------
    kind : str
        release, name, port, clock, certificate, key or program.
    sentence : str
        What it is, and what to do.
    passing : bool
        Whether it may go away while this machine stays as it is.
    """

    kind: str
    sentence: str
    passing: bool = True


def obstacle(machine: Machine, port: int, authority: Path) -> Obstacle | None:
    """Find what keeps this machine from that port of its server, which must have a certificate of `authority`.

    None if nothing does.
    """
    if (wrong := other_release(machine)) is not None:
        return wrong
    host, at = machine.server, address(machine.server, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return Obstacle(
            "name",
            f"The name {host} cannot be resolved on this machine. Enter it in the DNS or in /etc/hosts, or provision "
            "with an address that this machine knows.",
        )
    try:
        connection = socket.create_connection((host, port), timeout=TIMEOUT_S)
    except ConnectionRefusedError:
        return Obstacle(
            "port",
            f"{at} ({found[0][4][0]}) is closed: `fedsel start server` does not run there, or a firewall "
            f"refuses port {port}.",
        )
    except OSError as error:
        return Obstacle(
            "port",
            f"{at} ({found[0][4][0]}) does not answer ({error}): the machine is off, or a network or a "
            f"firewall on the way drops port {port}.",
        )
    with connection:
        return _distrust(machine, port, connection, authority)


def client_obstacle(machine: Machine, authority: Path, key: Path) -> Obstacle | None:
    """Find what keeps the client with this private key from its server, which must know the public one."""
    if (found := obstacle(machine, machine.port, authority)) is not None:
        return found
    try:
        words = why_refused(machine.fleet, authority, key)
    except ConnectionError as error:
        return Obstacle("program", f"{machine.fleet} does not answer as a server of Flower does ({error}).")
    return refusal(machine, words) if words else None


def other_release(machine: Machine) -> Obstacle | None:
    """An installed Flower of another release than the federation's; None where they are the same."""
    if machine.flower == HERE_RELEASE:
        return None
    return Obstacle(
        "release",
        f"This federation was provisioned for Flower {machine.flower}, and here is Flower {HERE_RELEASE}. Server and "
        f"clients must have the same release: pip install 'flwr[simulation]=={machine.flower}.*'",
        passing=False,
    )


def refusal(machine: Machine, words: str) -> Obstacle:
    """What it means that the server has refused this client in these words of Flower's."""
    if words == WRONG_CLOCK:
        return Obstacle(
            "clock",
            f"The clock of this machine ({_now()}) is ahead of that of {machine.server} by more than {AHEAD_S:.0f} s, "
            f"or behind it by more than {BEHIND_S:.0f} s. Set both by NTP.",
        )
    return Obstacle(
        "key",
        f"{machine.server} does not know the key of {machine.name}: it is revoked, or the folder on the server is "
        f"older than this one. There, clients/{machine.name}.pub of its folder admits this client.",
    )


def _distrust(machine: Machine, port: int, connection: socket.socket, authority: Path) -> Obstacle | None:
    """What is wrong with the certificate that the server shows."""
    trusting = ssl.create_default_context(cafile=authority)
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    try:
        trusting.wrap_socket(connection, server_hostname=machine.server).close()
    except ssl.SSLCertVerificationError as error:
        return _sentence(machine, error.verify_code, _shown(machine.server, port))
    except OSError as error:
        at = address(machine.server, port)
        return Obstacle("program", f"{at} does not speak TLS ({error}): another program listens there.")
    return None


def _sentence(machine: Machine, code: int, shown: Mapping[str, str]) -> Obstacle:
    if code in (NOT_YET, EXPIRED):
        return Obstacle(
            "clock",
            f"By this machine's clock ({_now()}) the certificate of {machine.server} is "
            f"{'not valid yet' if code == NOT_YET else 'not valid any more'}: it holds from {shown['from']} to "
            f"{shown['to']}. Set the clock by NTP; if it is right, provision anew.",
        )
    if code in OTHER_NAME:
        return Obstacle(
            "certificate",
            f"The certificate of the server is not for the name {machine.server}, but for {shown['names']}. Provision "
            f"with --server {machine.server} too, or give one of these names as `server` in machine.toml.",
            passing=False,
        )
    return Obstacle(
        "certificate",
        f"{machine.server} shows the certificate of another federation. This folder and the server's must "
        "come from the same `fedsel provision`.",
        passing=False,
    )


def _shown(host: str, port: int) -> dict[str, str]:
    """Names and dates in the certificate that the server shows; "?" where it shows none that can be read."""
    with suppress(OSError, ValueError):
        text = ssl.get_server_certificate((host, port), timeout=TIMEOUT_S)
        shown = x509.load_pem_x509_certificate(text.encode())
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {
            "names": ", ".join(str(name.value) for name in names),
            "from": f"{shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC",
            "to": f"{shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
        }
    return dict.fromkeys(("names", "from", "to"), "?")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
