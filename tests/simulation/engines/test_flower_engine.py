from types import SimpleNamespace

import pytest
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from ray.exceptions import ActorDiedError, ActorUnavailableError

from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.engines import flower_engine as engine
from simulation.engines.flower_engine import WorkerWatch, watched_engine
from tests.support.client_messages import train_message


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
        for error in (ValueError("of one client"), ActorUnavailableError("it is started anew", None), ActorDiedError()):
            assert not ended
            raised.append(error)
            with pytest.raises(type(error)):
                backend.process_message(message, context)
            assert backend.pool.pool == [worker]
    assert ended == ["A Ray worker died; its memory may not have sufficed"]


def test_an_engine_that_does_not_start_ends_the_run(monkeypatch):
    """Before, the server waited twelve hours for answers."""
    ended = []

    def run_api(app_fn):
        raise RuntimeError("Simulation Runtime crashed.") from OSError("The current node timed out during startup.")

    monkeypatch.setattr(vce_api, "run_api", run_api)
    with watched_engine(WorkerWatch(ReplyTimeout(60.0), ended.append)), pytest.raises(RuntimeError):
        vce_api.run_api(None)
    assert ended == ["Ray failed (The current node timed out during startup.)"]
