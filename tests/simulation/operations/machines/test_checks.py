"""Obstacles between a client and its server, each on a real port of this machine."""

import socket
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from simulation.operations.deployment import flower_cli
from simulation.operations.deployment.flower_cli import DeploymentError
from simulation.operations.guard.transport import CONNECTION, free_ports
from simulation.operations.machines import keys
from simulation.operations.machines.checks import obstacle
from simulation.operations.machines.folders import make_federation
from simulation.operations.machines.machine import HERE_RELEASE, Machine


def client(port, server="127.0.0.1"):
    return Machine("client", server, port, HERE_RELEASE, 3, 1)


@contextmanager
def listening(answer):
    """A port on every address of this machine. `answer` is called with one connection after the other."""
    with socket.create_server(("0.0.0.0", 0)) as server:

        def serve():
            with suppress(OSError):
                while True:
                    came, _ = server.accept()
                    with came:
                        answer(came)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def serving(made):
    """A port that answers like the federation's server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.server / "server.crt", made.server / "server.key")

    def shake_hands(came):
        with suppress(OSError):
            context.wrap_socket(came, server_side=True).close()

    return listening(shake_hands)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_federation(tmp_path_factory.mktemp("made") / "federation", ["server.example"], 2, 9092)


def test_what_is_in_the_way_of_a_connection_is_named(made, tmp_path, monkeypatch):
    other, [closed] = make_federation(tmp_path / "other", ["server.example"], 2, 9092), free_ports(1)
    with serving(made) as port, listening(lambda came: came.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")) as foreign:
        assert obstacle(client(port), port, made.certificate) is None
        for machine, authority, passing, words in (
            (replace(client(port), flower="1.0"), made.certificate, False, "'flwr[simulation]==1.0.*'"),
            (client(port, "no-such-machine.invalid"), made.certificate, True, "no-such-machine.invalid:"),
            (client(closed), made.certificate, True, f"127.0.0.1:{closed} does not answer"),
            (client(foreign), made.certificate, True, "does not answer"),
            (client(port), other.certificate, False, "is not trusted (self-signed certificate)"),
            (client(port, "127.0.0.2"), made.certificate, False, "not valid for '127.0.0.2'"),
        ):
            wrong = obstacle(machine, machine.port, authority)
            assert wrong.passing == passing
            assert words in wrong.sentence
    monkeypatch.setattr(keys, "VALID", -timedelta(minutes=30))
    past = make_federation(tmp_path / "past", ["server.example"], 2, 9092)
    with serving(past) as port:
        wrong = obstacle(client(port), port, past.certificate)
    assert wrong.passing
    assert "certificate has expired" in wrong.sentence


def test_no_proxy_stands_between_local_processes(monkeypatch):
    for name in ("no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "intranet.example")
    assert flower_cli.environment(None)["no_proxy"] == "intranet.example,127.0.0.1,localhost,::1"


def test_a_token_that_the_server_does_not_accept(tmp_path, monkeypatch):
    """Flower says to log in, but fedsel's server has no accounts."""
    program = tmp_path / "flwr"
    program.write_text("#!/bin/sh\necho 'Authentication failed. Please run `flwr login`'\n")
    program.chmod(0o700)
    monkeypatch.setattr(flower_cli, "tool", lambda name: str(program))
    with pytest.raises(DeploymentError, match="Copy the admin's file token again"):
        flower_cli.flwr(["list", CONNECTION], {"FLWR_HOME": str(tmp_path / "home")})
