from queue import Empty, Queue
from threading import Event, Thread
from types import SimpleNamespace

import numpy as np
import pytest
import ray
from flwr.app import ArrayRecord
from flwr.server.superlink.fleet.vce import vce_api
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from flwr.simulation.ray_transport.ray_actor import BasicActorPool
from ray.exceptions import ActorDiedError, ActorUnavailableError

from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.engines import flower_engine as engine
from simulation.engines import stored_model
from simulation.engines.flower_engine import WorkerWatch, deliver_when_stored, describe_death, watched_engine
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


def test_workers_are_ended_by_ray(monkeypatch):
    ended = []
    monkeypatch.setattr(ray, "kill", ended.append)
    pool = BasicActorPool.__new__(BasicActorPool)
    pool.pool = ["one", "another"]
    with watched_engine(WorkerWatch(ReplyTimeout(60.0), pytest.fail)):
        pool.terminate_all_actors()
    assert ended == pool.pool


class State:
    """The two methods of Flower's state that store a message and hand it to a node."""

    def __init__(self):
        self.messages = []

    def store_message_ins(self, message):
        self.messages.append(message)
        return "stored"

    def get_message_ins(self, node_id, limit):
        mine = [message for message in self.messages if message.metadata.dst_node_id == node_id][:limit]
        self.messages = [message for message in self.messages if message not in mine]
        return mine


def addressed_to(node, number=0):
    return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node), number=number)


def test_every_message_is_delivered_once_those_from_before_too():
    state, queue, stop = State(), Queue(), Event()
    early = [addressed_to(3), addressed_to(3, 1)]
    for message in early:
        state.store_message_ins(message)
    thread = Thread(target=deliver_when_stored, args=(state, queue, dict.fromkeys(range(10)), stop))
    thread.start()
    try:
        assert [queue.get(timeout=60) for _ in early] == early
        late = [addressed_to(7), addressed_to(3, 2), addressed_to(7, 1)]
        assert [state.store_message_ins(message) for message in late] == ["stored"] * 3
        assert sorted(queue.get(timeout=60).number for _ in late) == [0, 1, 2]
        with pytest.raises(Empty):
            queue.get(timeout=0.2)
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def test_the_engine_is_replaced_for_as_long_as_the_block_runs():
    def functions():
        delivery, start = vce_api.add_messages_to_queue, vce_api.run_api
        return delivery, start, RayBackend.process_message, BasicActorPool.terminate_all_actors

    flowers = functions()
    with watched_engine(WorkerWatch(ReplyTimeout(60.0), pytest.fail)):
        assert vce_api.add_messages_to_queue is deliver_when_stored
        assert not set(flowers) & set(functions())
    assert functions() == flowers


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
