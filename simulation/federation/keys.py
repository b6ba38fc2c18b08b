"""Keys of a federation: a certificate authority, the server's certificate, and a key pair for each client."""

import ipaddress
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedsel_app.config import ConfigError

VALID = timedelta(days=365)
CLOCK_SKEW = timedelta(hours=1)
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class Authority:
    """Certificate authority of a federation: every machine trusts `certificate`; the key is in memory alone."""

    def __init__(self) -> None:
        self._key, self._certificate = _authority()

    @property
    def certificate(self) -> bytes:
        """Its certificate, as PEM."""
        return _chain(self._certificate)

    @property
    def private(self) -> bytes:
        """Its key, as PEM: whoever has it can pass for the server."""
        return _pem(self._key)

    def server(self, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """Certificate of a server with these names or IP addresses, and of its own machine, and its key, as PEM.

        Raises
        ------
        ConfigError
            For what is neither a name nor an address.
        """
        key = ec.generate_private_key(ec.SECP384R1())
        certificate = _server(key, self._key, self._certificate, tuple(dict.fromkeys([*hosts, *THIS_MACHINE])))
        return _chain(certificate), _pem(key)


def client_key() -> tuple[bytes, bytes]:
    """A client's private key and its public one, in OpenSSH's form."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP384R1())
    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
    ) | {"key_cert_sign": True, "crl_sign": True, "encipher_only": False, "decipher_only": False}
    # A name of its own: two authorities of one name pass for each other until a signature fails, with odd messages.
    title = f"fedsel certificate authority {secrets.token_hex(4)}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    unsigned = (
        _dated(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, unsigned.sign(key, hashes.SHA384())


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    hosts: Sequence[str],
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedsel server")])
    unsigned = (
        _dated(name, authority.subject, key)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    return unsigned.sign(authority_key, hashes.SHA384())


def _dated(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"The server's name must be a host name or an IP address. Got {host!r}.") from error


def _chain(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
