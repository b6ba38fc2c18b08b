"""Signing key: with it somebody who has read the app signs it; it needs to be on neither server nor clients."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key

from fedsel_app.config import ConfigError
from fedsel_app.records.own_folder import make_private_folder

KEY = "key"
"""File of the key in a folder of signatures."""


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """Load the key in `folder`, which is made with it if it is absent.

    Raises ConfigError if it cannot be read or made, or is no Ed25519 key in OpenSSH's form without a password.
    """
    path = folder / KEY
    try:
        if not folder.exists():
            make_private_folder(folder)
            (folder / ".gitignore").write_text("*\n")
        if not path.exists():
            made = Ed25519PrivateKey.generate()
            path.touch(mode=0o600)
            path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"The key {path} cannot be used: {error}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"The key {path} is no Ed25519 key, which Flower asks for. Make one with `fedsel sign`.")
    return key
