"""Obstacles between a client and its server, each on a real port of this machine."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from simulation.operations.deployment import connection, flower_cli
from simulation.operations.deployment.connection import client_obstacle, obstacle, other_release, refused_by_server
from simulation.operations.deployment.flower_cli import DeploymentError
from simulation.operations.guard.command_lines import CONNECTION
from simulation.operations.guard.fleet_connection import WRONG_CLOCK
from simulation.operations.guard.transport import free_ports
from simulation.operations.machines import keys
from simulation.operations.machines.folders import FederationFolders, provision
from simulation.operations.machines.machine import HERE_RELEASE, Machine


def client(port: int, server: str = "127.0.0.1") -> Machine:
    return Machine("client", server, port, HERE_RELEASE, 3, 1)


@contextmanager
def listening(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port on every address of this machine. `answer` is called with one connection after the other."""
    with socket.create_server(("0.0.0.0", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    came, _ = server.accept()
                except OSError:
                    return
                with came:
                    answer(came)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def encrypted(made: FederationFolders) -> Callable[[socket.socket], None]:
    """An answer like that of the federation's server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server / "server.crt", made.server / "server.key")

    def shake_hands(came: socket.socket) -> None:
        with suppress(OSError):
            context.wrap_socket(came, server_side=True).close()

    return shake_hands


def found(made: FederationFolders, folder: Path, name: str = "127.0.0.1") -> connection.Obstacle | None:
    """Obstacle between a machine with this folder and the server of `made`; None if there is none."""
    with listening(encrypted(made)) as port:
        return obstacle(client(port, name), port, folder / "ca.crt")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FederationFolders:
    return provision(tmp_path_factory.mktemp("made") / "federation", ["server.example"], 2, 9092)


def test_nothing_is_in_the_way_of_a_trusted_server(made):
    assert found(made, made.client(1)) is None


def test_another_release_of_flower(made):
    wrong = other_release(replace(client(1), flower="1.0"))
    assert not wrong.passing
    assert wrong.sentence.endswith("pip install 'flwr[simulation]==1.0.*'")
    assert other_release(client(1)) is None


def test_a_name_that_does_not_resolve(made):
    wrong = obstacle(client(1, "no-such-machine.invalid"), 1, made.authority)
    assert (wrong.kind, wrong.passing) == ("name", True)
    assert wrong.sentence.startswith("The name no-such-machine.invalid cannot be resolved on this machine.")


def test_a_closed_port(made):
    [port] = free_ports(1)
    wrong = obstacle(client(port), port, made.authority)
    assert (wrong.kind, wrong.passing) == ("port", True)
    assert f"127.0.0.1:{port} (127.0.0.1) is closed" in wrong.sentence


def test_the_certificate_of_another_federation(made, tmp_path):
    other = provision(tmp_path / "other", ["server.example"], 2, 9092)
    wrong = found(made, other.client(1))
    assert (wrong.kind, wrong.passing) == ("certificate", False)
    assert "the certificate of another federation" in wrong.sentence


def test_a_certificate_for_other_names(made):
    wrong = found(made, made.client(1), "127.0.0.2")
    assert (wrong.kind, wrong.passing) == ("certificate", False)
    assert "not valid for the name 127.0.0.2, only for server.example, localhost, 127.0.0.1, ::1." in wrong.sentence


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("VALID", -timedelta(minutes=30), "is no longer valid by the clock of this machine"),
        ("CLOCK_SKEW", -timedelta(hours=1), "is not valid yet by the clock of this machine"),
    ],
)
def test_a_clock_outside_of_the_certificates_time(tmp_path, monkeypatch, name, value, words):
    monkeypatch.setattr(keys, name, value)
    other = provision(tmp_path / "other", ["server.example"], 2, 9092)
    wrong = found(other, other.client(1))
    assert (wrong.kind, wrong.passing) == ("clock", True)
    assert words in wrong.sentence
    assert "it is valid from 20" in wrong.sentence


def test_another_program_at_the_port(made):
    with listening(lambda came: came.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")) as port:
        wrong = obstacle(client(port), port, made.authority)
    assert wrong.kind == "program"
    assert "does not use TLS" in wrong.sentence


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (WRONG_CLOCK, "clock", "is more than 5 s ahead of the clock of 127.0.0.1, or more than 305 s behind it"),
        ("Invalid token", "key", "127.0.0.1 does not know the key of client-1"),
    ],
)
def test_a_refusal_by_flower(made, monkeypatch, words, kind, sentence):
    assert refused_by_server(client(1), words).kind == kind
    monkeypatch.setattr(connection, "why_refused", lambda *_: words)
    with listening(encrypted(made)) as port:
        wrong = client_obstacle(client(port), made.authority, made.client(1) / "key")
    assert wrong.kind == kind
    assert sentence in wrong.sentence


def test_a_proxy_that_does_not_reach_the_server_is_named_and_none_stands_between_local_processes(made, monkeypatch):
    for name in ("grpc_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "intranet.example")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with listening(encrypted(made)) as port:
        wrong = client_obstacle(client(port), made.authority, made.client(1) / "key")
    assert wrong.kind == "proxy"
    assert wrong.sentence.startswith("The proxy http://127.0.0.1:9 of the variable https_proxy does not pass")
    assert "Add 127.0.0.1 to the variable no_proxy" in wrong.sentence
    assert flower_cli.environment(None)["no_proxy"] == "intranet.example,127.0.0.1,localhost,::1"


@pytest.mark.parametrize(("superlink", "sentence"), [(CONNECTION, "Copy the admin's file token again"), ("x", "login")])
def test_a_token_that_the_server_does_not_accept(tmp_path, monkeypatch, superlink, sentence):
    """Flower says to log in, but fedsel's server has no accounts. The server of a connection of the user's own may."""
    program = tmp_path / "flwr"
    program.write_text("#!/bin/sh\necho 'Authentication failed. Please run `flwr login`'\n")
    program.chmod(0o700)
    monkeypatch.setattr(flower_cli, "tool", lambda name: str(program))
    with pytest.raises(DeploymentError, match=sentence):
        flower_cli.flwr(["list", superlink], {"FLWR_HOME": str(tmp_path / "home")})
