from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from ray.exceptions import ActorDiedError, ActorUnavailableError

from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.engines import flower_engine as engine
from simulation.engines import stored_model
from simulation.engines.flower_engine import WorkerWatch, describe_death, watched_engine
from tests.support.client_messages import train_message

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
    assert describe_death(Death()).startswith("The Ray worker with pid 417 on 192.0.2.2 died")
    assert describe_death(ActorDiedError()).startswith("The Ray worker died")


class Worker:
    """Worker that takes every message."""

    run = SimpleNamespace(remote=lambda *arguments: "answer")


def test_only_a_worker_that_is_dead_for_good_ends_the_run(monkeypatch):
    raised, ended, worker = [], [], Worker()

    def get(answer):
        raise raised[-1]

    answering = SimpleNamespace(wait=lambda answers, timeout: (answers, []), get=get, nodes=lambda: [{"Alive": True}])
    monkeypatch.setattr(engine, "ray", answering)
    backend, context = RayBackend.__new__(RayBackend), SimpleNamespace(node_config={"partition-id": 0})
    backend.pool, backend.app_fn = SimpleNamespace(pool=[worker]), None
    message = train_message()
    with watched_engine(WorkerWatch(ReplyTimeout(60.0), ended.append)):
        for error in (ValueError("of one client"), ActorUnavailableError("it is started anew", None), Death()):
            assert not ended
            raised.append(error)
            with pytest.raises(type(error)):
                backend.process_message(message, context)
            assert backend.pool.pool == [worker]
    assert len(ended) == 1
    assert "417" in ended[0]


def test_an_engine_that_does_not_start_ends_the_run(monkeypatch):
    """Before, the server waited twelve hours for answers."""
    ended = []

    def run_api(app_fn):
        raise RuntimeError("Simulation Runtime crashed.") from OSError("The current node timed out during startup.")

    monkeypatch.setattr(vce_api, "run_api", run_api)
    with watched_engine(WorkerWatch(ReplyTimeout(60.0), ended.append)), pytest.raises(RuntimeError):
        vce_api.run_api(None)
    assert ended == ["Ray failed (The current node timed out during startup.)"]


@pytest.mark.parametrize(("size", "stored"), [(100, 0), (100_000, 1)])
def test_a_large_model_is_stored_once_for_all_messages(monkeypatch, size, stored):
    """A worker answers three messages with one model, which it reads from the store once, and then one with another."""
    store, asked = {}, []

    def put(record):
        store[f"record {len(store)}"] = record
        return f"record {len(store) - 1}"

    def read(reference):
        asked.append(reference)
        return store[reference]

    def run(app_fn, message, client, context):
        assert ("arrays" in message.content) == (not stored)
        return "answer", app_fn()(message=message, context=context), context

    ray = SimpleNamespace(wait=lambda answers, timeout: (answers, []), get=lambda answer: answer, put=put)
    monkeypatch.setattr(engine, "ray", ray)
    monkeypatch.setattr(stored_model, "ray", SimpleNamespace(get=read))
    backend, context = RayBackend.__new__(RayBackend), SimpleNamespace(node_config={"partition-id": 0})
    worker = Worker()
    worker.run = SimpleNamespace(remote=run)
    backend.pool = SimpleNamespace(pool=[worker])
    backend.app_fn = lambda: lambda message, context: message.content["arrays"]
    models = [ArrayRecord([np.full(size, number, np.float32)]) for number in range(2)]
    with watched_engine(WorkerWatch(ReplyTimeout(60.0), lambda reason: None)):
        for model in (models[0], models[0], models[0], models[1]):
            message = train_message()
            message.content["arrays"] = model
            assert backend.process_message(message, context)[0] is model
            assert message.content["arrays"] is model
    assert len(store) == len(asked) == 2 * stored
