"""Keys of a federation: the server's certificate, key pairs of the clients, and a signing key.

The owner of the signing key reads the app and signs it. Neither the server nor the clients need that key.
"""

import base64
import hashlib
import ipaddress
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsel_app.config import ConfigError
from simulation.operations.guard.app_signature import NO_KEY
from simulation.operations.machines.machine import is_host
from simulation.operations.machines.private_files import (
    OWNER_ALONE,
    NewFile,
    make_folder,
    read_file,
    refuse_changeable,
    write_new,
)

VALID, CLOCK_SKEW = timedelta(days=365), timedelta(hours=1)
"""How long the certificate of a server is valid, and since how long it is."""
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
KEY = "key"
"""Name of the key's file in a signing folder."""
LONGEST_REQUEST = 10_000


def server_certificate(hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """Certificate and key of a server, as PEM. The certificate is valid for `hosts` and for the server itself.

    It signs itself, and every machine of the federation trusts this one certificate. Raises ConfigError if a host is
    neither a host name nor an IP address.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    names = [_alternative_name(host) for host in dict.fromkeys([*hosts, *THIS_MACHINE])]
    # The name is unique: if two servers share a name, a wrong certificate is only noticed by its signature.
    title = f"fedsel server {secrets.token_hex(4)}"
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA384())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), private


def client_key() -> tuple[bytes, bytes]:
    """Private and public key of a client, in OpenSSH's format."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def read_request(path: Path) -> bytes:
    """Public key in a client's request, in OpenSSH's format and without a comment.

    Raises ConfigError if the file cannot be read, or is no public key of a client.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # of a pipe nothing comes, at once
            key = load_ssh_public_key(file.read(LONGEST_REQUEST))
        if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
            raise ValueError("another kind of key")
    except (OSError, *NO_KEY) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} is no request of a client ({why}). `fedsel request` makes one.") from error
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def fingerprint(public: bytes) -> str:
    """Fingerprint of a public key in OpenSSH's format, as `ssh-keygen -lf` prints it."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def certified_names(certificate: bytes) -> list[str]:
    """Names and addresses for which a server's certificate, as PEM, is valid. Raises ValueError if it is damaged."""
    extensions = x509.load_pem_x509_certificate(certificate).extensions
    return [str(name.value) for name in extensions.get_extension_for_class(x509.SubjectAlternativeName).value]


def days_left(certificate: bytes) -> int:
    """Whole days until a certificate, as PEM, is no longer valid; negative after that."""
    return (x509.load_pem_x509_certificate(certificate).not_valid_after_utc - datetime.now(UTC)).days


def _alternative_name(host: str) -> x509.GeneralName:
    if not is_host(host):
        raise ConfigError(f"The server's name must be a host name or an IP address. Got {host!r}.")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """Load the key in `folder`. If there is none, make the folder and the key.

    Raises ConfigError if another user may change the folder, if the key cannot be read or made, or can be read by
    others, or if it is not an Ed25519 key in OpenSSH's format without a password.
    """
    path = folder / KEY
    try:
        if not folder.exists():
            make_folder(folder, {".gitignore": NewFile(b"*\n")})
        refuse_changeable(folder, folder.stat())
        if not os.path.lexists(path):
            private = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
            write_new(path, NewFile(private, OWNER_ALONE))
        key = load_ssh_private_key(read_file(path, secret=True), None)
    except ConfigError:
        raise
    except (OSError, *NO_KEY) as error:
        raise ConfigError(f"The signing key {path} cannot be used: {error}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"The signing key {path} is not an Ed25519 key, and Flower accepts no other. Choose an empty folder, and "
            "`fedsel sign` makes one."
        )
    return key
