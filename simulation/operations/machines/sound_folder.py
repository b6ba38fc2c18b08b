"""Check of a machine's folder before it is used: each file is there, and is what its name says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import Certificate, load_pem_x509_certificates

from fedsel_app.config import ConfigError
from simulation.operations.guard.app_signature import NO_KEY, TRUSTED, signatures_of
from simulation.operations.machines.keys import public_part
from simulation.operations.machines.machine import Machine
from simulation.operations.machines.private_files import read_file, refuse_changeable

PUBLIC = "key.pub"
"""In the folder of a client that made its key itself: the public key that the federation knows."""


def check_folder(folder: Path, machine: Machine) -> None:
    """Check the files in the folder of a machine that `fedsel provision` made.

    Raises ConfigError if one is missing or damaged, another user may change it, or a secret one can be read by others.
    The message names it.
    """
    refuse_changeable(folder, folder.stat())
    _parsed(folder / "ca.crt", load_pem_x509_certificates)
    if machine.role == "client":
        _check_client(folder)
    elif machine.role == "admin":
        _parsed(folder / "token", _one(r"[\w-]+"), secret=True)
    else:
        _check_server(folder)


def _check_client(folder: Path) -> None:
    asked = folder / PUBLIC
    if asked.exists() and not (folder / "key").exists():
        raise ConfigError(f"Copy the files of {folder} into the folder that `fedsel request` made: it has the key.")
    if (folder / TRUSTED).is_file():
        read_file(folder / TRUSTED)
    public = _parsed(folder / "key", public_part, secret=True)
    if asked.exists() and public != read_file(asked).strip():
        raise ConfigError(f"{folder / 'key'} is not the key of the request that {asked} answers.")


def _check_server(folder: Path) -> None:
    [certificate, *chain] = _parsed(folder / "server.crt", load_pem_x509_certificates)
    if not any(
        _issued(certificate, issuer) for issuer in [*chain, *_parsed(folder / "ca.crt", load_pem_x509_certificates)]
    ):
        raise _again(folder, "ca.crt has not signed server.crt")
    key = _parsed(folder / "server.key", lambda text: load_pem_private_key(text, None), secret=True)
    if key.public_key() != certificate.public_key():
        raise _again(folder, "server.key is not the key of server.crt")
    _parsed(folder / "token.sha256", _one("[0-9a-f]{64}"))
    keys = folder / "clients"
    if not keys.is_dir():
        raise _again(keys, "there is no such folder")
    for path in (keys, *filter(Path.exists, keys.glob("*.pub"))):
        refuse_changeable(path, path.stat())
    signatures_of(folder, "")


def read_certificates(path: Path) -> bytes:
    """Content of a file of certificates. Raises ConfigError as `check_folder` does."""
    _parsed(path, load_pem_x509_certificates)
    return read_file(path)


def _issued(certificate: Certificate, issuer: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _parsed(path: Path, parse: Callable[[bytes], Any], *, secret: bool = False) -> Any:
    """Content of the file as `parse` returns it."""
    content = read_file(path, secret=secret)
    try:
        return parse(content)
    except NO_KEY as error:
        raise _again(path, f"it is {'damaged' if content else 'empty'}") from error


def _one(form: str) -> Callable[[bytes], None]:
    """Check that a text is one word of this form."""

    def check(text: bytes) -> None:
        if not re.fullmatch(form, text.decode("ascii").strip()):
            raise ValueError("another form")

    return check


def _again(path: Path, why: str) -> ConfigError:
    return ConfigError(f"Copy {path} again from where it was provisioned: {why}.")
