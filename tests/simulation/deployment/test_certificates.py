"""Certificates, checked by Python's TLS and by OpenSSH."""

import socket
import ssl
import stat
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedsel_app.config import ConfigError
from simulation.deployment.certificates import Certificates, make_certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("made") / "keys", ["server.example", "10.1.2.3"], 2)


def handshake(server: Certificates, trusted: Certificates, name: str) -> str:
    """Outcome of a TLS connection to `server` under `name` by a client that trusts `trusted`."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(*server.server)
    asking = ssl.create_default_context(cafile=trusted.authority)
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            with listening.wrap_socket(there, server_side=True) as connection:
                connection.sendall(b"hello")
        except ssl.SSLError:
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with here, asking.wrap_socket(here, server_hostname=name) as connection:
            return connection.recv(5).decode()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    finally:
        thread.join()


@pytest.mark.parametrize("name", ["server.example", "10.1.2.3", "localhost", "127.0.0.1", "::1"])
def test_the_server_is_trusted_under_each_of_its_names(made, name):
    assert handshake(made, made, name) == "hello"


def test_another_name_and_another_authority_are_refused(made, tmp_path):
    assert "mismatch" in handshake(made, made, "elsewhere.example")
    other = make_certificates(tmp_path, ["server.example"], 0)
    assert handshake(made, other, "server.example") == "unable to get local issuer certificate"


def test_private_files_are_their_owners_alone(made):
    private = {path.relative_to(made.folder).as_posix() for path in made.folder.rglob("*") if is_private(path)}
    assert private == {"ca.key", "server.key", "clients/client-0", "clients/client-1"}
    assert not {path for path in made.folder.rglob("*") if path.suffix == ".key" and not is_private(path)}


def is_private(path) -> bool:
    return path.is_file() and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_client_has_a_pair_of_its_own(made):
    pairs = []
    for client in range(2):
        private, public = made.client(client)
        key = load_ssh_private_key(private.read_bytes(), None).public_key()
        assert key == load_ssh_public_key(public.read_bytes())
        pairs.append(key)
    assert pairs[0] != pairs[1]


def test_only_the_authority_can_sign(made):
    certificates = [x509.load_pem_x509_certificate(path.read_bytes()) for path in (made.authority, made.server[0])]
    assert [found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca for found in certificates] == [
        True,
        False,
    ]


def test_what_is_there_is_never_overwritten(made):
    before = made.authority.read_bytes()
    with pytest.raises(ConfigError, match="holds certificates already"):
        make_certificates(made.folder, [], 1)
    assert made.authority.read_bytes() == before


def test_a_name_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="host name or an IP address"):
        make_certificates(tmp_path, ["сервер"], 1)


def test_missing_files_are_named(made):
    made.check(2)
    with pytest.raises(ConfigError, match="client-2"):
        made.check(3)
