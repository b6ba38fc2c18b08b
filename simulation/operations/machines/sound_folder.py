"""Check of a machine's folder before it is used: each file is there, and is what its name says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
from cryptography.x509 import load_pem_x509_certificate

from fedsel_app.config import ConfigError
from simulation.operations.guard.app_signature import NO_KEY, TRUSTED, signatures_of
from simulation.operations.machines.machine import Machine
from simulation.operations.machines.private_files import read_file, refuse_changeable

CERTIFICATE, PUBLIC = "server.crt", "key.pub"
"""The server's certificate, in each folder. In the folder of a client that made its key itself: its public key."""


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
