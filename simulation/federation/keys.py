"""Keys of a federation: a certificate authority, the server's certificate, key pairs of the clients, and a signing key.

The owner of the signing key reads the app and signs it. Neither the server nor the clients need that key.
"""

import ipaddress
import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import make_private_folder
from simulation.federation.machine import is_host
from simulation.federation.private_files import OWNER_ALONE, NewFile, own_folder, read_file, write_new

VALID = timedelta(days=365)
CLOCK_SKEW = timedelta(hours=1)
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
KEY = "key"
"""Name of the key's file in a signing folder."""


class Authority:
    """Certificate authority of a federation. Every machine trusts its certificate; its key exists in memory only."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        # The name is unique: if two authorities share a name, a wrong certificate is only noticed by its signature.
        title = f"fedsel certificate authority {secrets.token_hex(4)}"
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
        other_uses = (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        )
        usage = x509.KeyUsage(key_cert_sign=True, crl_sign=True, **dict.fromkeys(other_uses, False))
        self._certificate = (
            self._dated(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA384())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's certificate, as PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def private(self) -> bytes:
        """The authority's key, as PEM. Whoever has it can impersonate the server."""
        return _pem(self._key)

    def server(self, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """Certificate and key of a server, as PEM. The certificate is valid for `hosts` and for the server itself.

        Raises
        ------
        ConfigError
            If a host is neither a host name nor an IP address.
        """
        key = ec.generate_private_key(ec.SECP384R1())
        names = [_alternative_name(host) for host in dict.fromkeys([*hosts, *THIS_MACHINE])]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._dated(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedsel server")]), key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA384())
        )
        return certificate.public_bytes(Encoding.PEM), _pem(key)

    def _dated(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + VALID)
        )


def client_key() -> tuple[bytes, bytes]:
    """Private and public key of a client, in OpenSSH's format."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def _alternative_name(host: str) -> x509.GeneralName:
    if not is_host(host):
        raise ConfigError(f"The server's name must be a host name or an IP address. Got {host!r}.")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def signing_key(folder: Path) -> Ed25519PrivateKey:
    """Load the key in `folder`. If there is none, make the folder and the key.

    Raises
    ------
    ConfigError
        If the folder is another user's, if the key cannot be read or made, or can be read by others, or if it is not
        an Ed25519 key in OpenSSH's format without a password.
    """
    path = folder / KEY
    try:
        if not folder.exists():
            make_private_folder(folder)
            (folder / ".gitignore").write_text("*\n")
        with own_folder(folder) as opened:
            if not os.path.lexists(path):
                made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
                write_new(opened, KEY, NewFile(made, OWNER_ALONE))
        key = load_ssh_private_key(read_file(path, secret=True), None)
    except ConfigError:
        raise
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"The signing key {path} cannot be used: {error}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"The signing key {path} is not an Ed25519 key, and Flower accepts no other. Choose an empty folder, and "
            "`fedsel sign` makes one."
        )
    return key
