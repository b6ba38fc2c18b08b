"""Signing key: its owner reads the app and signs it. Neither the server nor the clients need this key."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import make_private_folder

KEY = "key"
"""Name of the key's file in a signing folder."""


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """Load the key in `folder`. If there is none, make the folder and the key.

    Raises
    ------
    ConfigError
        If the key cannot be read or made, or is not an Ed25519 key in OpenSSH's format without a password.
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
        raise ConfigError(f"The signing key {path} cannot be used: {error}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"The signing key {path} is not an Ed25519 key, and Flower accepts no other. Choose an empty folder, and "
            "`fedsel sign` makes one."
        )
    return key
