"""Checks of a machine before it is used: the files of its folder, and the connection to its server.

Flower itself retries without a message, or ends with a message that does not say what to do.
"""

import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
from cryptography.x509 import load_pem_x509_certificate

from fedsel_app.config import ConfigError
from simulation.operations.guard.app_signature import NO_KEY, TRUSTED, signatures_of
from simulation.operations.machines.machine import HERE_RELEASE, Machine, address
from simulation.operations.machines.private_files import read_file, refuse_changeable

CERTIFICATE, PUBLIC = "server.crt", "key.pub"
"""The server's certificate, in each folder. In the folder of a client that made its key itself: its public key."""
TIMEOUT_S = 5.0
NOT_NOW = (9, 10)
"""OpenSSL's codes for a certificate that is not valid at the time of this machine's clock."""


def check_folder(folder: Path, machine: Machine) -> None:
    """Check the files in the folder of a machine that `fedsel provision` made.

    Raises ConfigError if one is missing or damaged, another user may change it, or a secret one can be read by others.
    The message names it.
    """
    refuse_changeable(folder, folder.stat())
    certificate = _parsed(folder / CERTIFICATE, load_pem_x509_certificate)
    if machine.role == "client":
        if (folder / PUBLIC).exists() and not (folder / "key").exists():
            raise ConfigError(f"Copy the files of {folder} into the folder that `fedsel request` made: it has the key.")
        if (folder / TRUSTED).is_file():
            read_file(folder / TRUSTED)
        key = _parsed(folder / "key", lambda text: load_ssh_private_key(text, None), secret=True)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise _again(folder / "key", "it is another kind of key")
    elif machine.role == "admin":
        _parsed(folder / "token", re.compile(rb"[\w-]+\s*").fullmatch, secret=True)
    else:
        key = _parsed(folder / "server.key", lambda text: load_pem_private_key(text, None), secret=True)
        if key.public_key() != certificate.public_key():
            raise _again(folder, "server.key is not the key of server.crt")
        _parsed(folder / "token.sha256", re.compile(rb"[0-9a-f]{64}\s*").fullmatch)
        keys = folder / "clients"
        if not keys.is_dir():
            raise _again(keys, "there is no such folder")
        for path in (keys, *filter(Path.exists, keys.glob("*.pub"))):
            refuse_changeable(path, path.stat())
        signatures_of(folder, "")


def read_certificate(path: Path) -> bytes:
    """Content of a file with a certificate. Raises ConfigError as `check_folder` does."""
    _parsed(path, load_pem_x509_certificate)
    return read_file(path)


def _parsed(path: Path, parse: Callable[[bytes], Any], *, secret: bool = False) -> Any:
    """Content of the file as `parse` returns it: an error or None means that the file is damaged."""
    try:
        parsed = parse(read_file(path, secret=secret))
    except ConfigError:
        raise
    except NO_KEY:
        parsed = None
    if parsed is None:
        raise _again(path, "it is damaged")
    return parsed


def _again(path: Path, why: str) -> ConfigError:
    return ConfigError(f"Copy {path} again from where it was provisioned: {why}.")


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
