"""Check of a machine's folder before it is used: each file is there, and is what its name says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
from cryptography.x509 import load_pem_x509_certificates

from fedsel_app.config import ConfigError
from simulation.federation.machine import Machine
from simulation.federation.private_files import read_file
from simulation.guard.app_signature import signatures_of


def check_folder(folder: Path, machine: Machine) -> None:
    """Check the files in the folder of a machine that `fedsel provision` made.

    Raises
    ------
    ConfigError
        If one is missing or damaged, or a secret one can be read by others. The message names it.
    """
    _parsed(folder / "ca.crt", load_pem_x509_certificates)
    if machine.role == "client":
        _parsed(folder / "key", _client_key, secret=True)
    elif machine.role == "admin":
        _parsed(folder / "token", _one(r"[\w-]+"), secret=True)
    else:
        _check_server(folder)


def _check_server(folder: Path) -> None:
    [certificate, *_] = _parsed(folder / "server.crt", load_pem_x509_certificates)
    key = _parsed(folder / "server.key", lambda text: load_pem_private_key(text, None), secret=True)
    if key.public_key() != certificate.public_key():
        raise _again(folder, "server.key is not the key of server.crt")
    _parsed(folder / "token.sha256", _one("[0-9a-f]{64}"))
    if not (folder / "clients").is_dir():
        raise _again(folder / "clients", "there is no such folder")
    signatures_of(folder, "")


def _parsed(path: Path, parse: Callable[[bytes], Any], *, secret: bool = False) -> Any:
    """Content of the file as `parse` returns it."""
    content = read_file(path, secret=secret)
    try:
        return parse(content)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _again(path, f"it is {'damaged' if content else 'empty'}") from error


def _client_key(text: bytes) -> None:
    if not isinstance(load_ssh_private_key(text, None), ec.EllipticCurvePrivateKey):
        raise ValueError("another kind of key")


def _one(form: str) -> Callable[[bytes], None]:
    """Check that a text is one word of this form."""

    def check(text: bytes) -> None:
        if not re.fullmatch(form, text.decode("ascii").strip()):
            raise ValueError("another form")

    return check


def _again(path: Path, why: str) -> ConfigError:
    return ConfigError(f"Copy {path} again from where it was provisioned: {why}.")
