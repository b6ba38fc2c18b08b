"""App signature: SuperNodes with ``--trusted-entities`` import only an app that a trusted key has signed.

A run brings its app as a bundle (FAB), and Flower's SuperNode can verify an Ed25519 signature of the bundle. Flower's
SuperLink has signatures only for apps on Flower Hub. The one of `guard.superlink` also hands out the signatures in the
file `SIGNATURES` of the server's folder. Neither server nor clients need the private key.

It uses `build_fab_from_disk` and Flower's formats of the signed text and of a signature. A command of `flwr` that signs
a local app would replace this file.
"""

import base64
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedsel_app.config import ConfigError
from fedsel_app.records.files import write_text

SIGNATURES, TRUSTED = "signatures.json", "trusted.yaml"
"""Files of a folder of signatures: the first for the SuperLink, the second for the SuperNodes."""
SIGNER = re.compile(r"^\w+: ssh-ed25519 \S", re.MULTILINE)
"""Line of a trusted signer."""
NEWEST = "newest-apps.json"
"""File in a SuperNode's FLWR_HOME: name of an app -> the latest second at which one was signed that it has run."""
NO_KEY = (ValueError, TypeError, NotImplementedError, UnsupportedAlgorithm)
"""Errors of cryptography for what is no key or certificate, or one of a kind that it does not read."""


def sign_app(app: Path, folder: Path, key: Ed25519PrivateKey) -> str:
    """Sign the app as it is now, and write the signature and the trusted public key to `folder`.

    Returns the SHA-256 of the bundle. Raises ConfigError if `folder` cannot be written.
    """
    from flwr.cli.build import build_fab_from_disk
    from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign

    content = build_fab_from_disk(app)
    digest, signed_at = hashlib.sha256(content), int(time.time())
    signature = base64.urlsafe_b64encode(key.sign(create_message_to_sign(digest.digest(), signed_at))).decode()
    name, public = signer(key)
    signed = _read(folder)
    signed[digest.hexdigest()] = dict(signed.get(digest.hexdigest(), {})) | {
        name: json.dumps({"signed_at": signed_at, "signature": signature})
    }
    try:
        write_text(folder / SIGNATURES, json.dumps(signed, indent=1))
        write_text(folder / TRUSTED, f"{name}: {public}\n")
    except OSError as error:
        raise ConfigError(f"The signature cannot be written to {folder}: {error}.") from error
    return digest.hexdigest()


def signer(key: Ed25519PrivateKey) -> tuple[str, str]:
    """Name and public key of a signer, as clients that trust it have them in their file `TRUSTED`."""
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return f"fpk_{hashlib.sha256(public.encode()).hexdigest()[:32]}", public


def is_signed(app: Path, folder: Path) -> bool:
    """True if `folder` has a signature of the app as it is now."""
    from flwr.cli.build import build_fab_from_disk

    return bool(signatures_of(folder, hashlib.sha256(build_fab_from_disk(app)).hexdigest()))


def signatures_of(folder: Path, bundle: str) -> dict[str, str]:
    """Signatures in `folder` of the bundle with this SHA-256, in Flower's form; empty without any."""
    signed = _read(folder).get(bundle, {})
    return {"valid_license": "Valid"} | dict(signed) if signed else {}


def newest_alone(verify: Callable[[Any, dict[str, str]], bool], newest: Path) -> Callable[[Any, dict[str, str]], bool]:
    """Wrap Flower's `_verify_fab` so that it refuses an app that was signed before the newest one of its name.

    The file `newest` remembers when that was signed. Raises OSError or ValueError if it cannot be read or written.
    """
    from flwr.cli.config_utils import get_fab_metadata
    from flwr.common.logger import log

    def verified(fab: Any, trusted: dict[str, str]) -> bool:
        signed = [
            json.loads(fab.verifications[name])["signed_at"]
            for name, key in trusted.items()
            if name in fab.verifications and verify(fab, {name: key})
        ]
        if not signed:
            return False
        app, _ = get_fab_metadata(fab.content)
        times = json.loads(newest.read_text(encoding="utf-8")) if newest.exists() else {}
        if max(signed) < (last := times.get(app, 0)):
            then, later = (datetime.fromtimestamp(second, UTC).isoformat(" ") for second in (max(signed), last))
            log(logging.ERROR, "Sign %s again: it was signed at %s, and one of %s ran here.", app, then, later)
            return False
        newest.parent.mkdir(parents=True, exist_ok=True)
        write_text(newest, json.dumps(times | {app: max(signed)}))
        return True

    return verified


def refuse_no_signer(trusted: Path) -> None:
    """Raise ConfigError unless `trusted` has at least one signer.

    Flower's SuperNode takes a file without signers for the wish to import every app.
    """
    if not trusted.is_file() or not SIGNER.search(trusted.read_text(encoding="utf-8", errors="replace")):
        raise ConfigError(
            f"Copy {TRUSTED} from the folder of `fedsel sign` to {trusted}: without a trusted signer, this client "
            "would execute the app of everybody who may submit runs. If you want that, add --unsigned-apps."
        )


def _read(folder: Path) -> dict[str, Mapping[str, str]]:
    path = folder / SIGNATURES
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is no file")
        signed = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"The signatures in {path} cannot be read: {error}.") from error
    if not isinstance(signed, dict) or not all(isinstance(entry, dict) for entry in signed.values()):
        raise ConfigError(f"The file {path} has no signatures. Run `fedsel sign` again.")
    return signed
