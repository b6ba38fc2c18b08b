"""What the Ray engine says of dead workers and of clusters that cannot be joined, without starting Ray."""

import socket

import pytest
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from ray.exceptions import ActorDiedError, ActorUnavailableError

from fedsel_app.config import ConfigError, ExecutionConfig
from simulation.engines import ray_engine

DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: ClientAppActor
\tpid: 417
\tnamespace: 1fa4
\tip: 192.0.2.2
The actor is dead because its worker process has died."""


class Death(ActorDiedError):
    def __str__(self):
        return DIED


def test_a_dead_worker_is_named_by_its_pid_and_machine():
    assert ray_engine.describe(Death()).startswith("The Ray worker with pid 417 on 192.0.2.2 died")
    assert ray_engine.describe(ActorDiedError()).startswith("The Ray worker died")


def test_only_a_worker_that_is_dead_for_good_ends_the_run(monkeypatch):
    raised, ended = [], []

    def process(backend, message, context):
        raise raised[-1]

    monkeypatch.setattr(RayBackend, "process_message", process)
    backend = RayBackend.__new__(RayBackend)
    with ray_engine.watched(ended.append):
        for error in (ValueError("of one client"), ActorUnavailableError("it is started anew", None), Death()):
            assert not ended
            raised.append(error)
            with pytest.raises(type(error)):
                backend.process_message(None, None)
    assert len(ended) == 1
    assert "417" in ended[0]
    assert RayBackend.process_message is process


def test_an_address_without_a_cluster_is_refused_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConfigError, match=rf"^No Ray cluster answers at 'ray-address' {address} "):
        ray_engine.join(address, {"num_cpus": 1.0}, tmp_path / "clients")
    assert not (tmp_path / "clients").exists()


def test_the_cluster_says_how_many_workers_there_are():
    with pytest.raises(ConfigError, match=r"With 'ray-address' .* 'workers' .* leave that at 0\. Got 2\."):
        ExecutionConfig(ray_address="auto", workers=2)
