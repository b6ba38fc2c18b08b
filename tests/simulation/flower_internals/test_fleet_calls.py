"""Fleet API calls that carry the objects of small messages, between Flower's own SuperNode and SuperLink."""

import re
from collections import Counter
from importlib import import_module
from inspect import signature
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.error import Error
from flwr.app.message import remove_content_from_message
from flwr.common.constant import NOOP_FLWR_AID
from flwr.common.serde import message_to_proto
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.superlink.federation import NoOpFederationManager
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message, _pull_and_store_message, _push_messages

from fedsel_app.network.clock import LEAST_BYTES
from simulation.flower_internals import fleet_calls
from simulation.flower_internals.fleet_calls import attach, carry_objects, detach
from simulation.flower_internals.fleet_connection import (
    CLIENT_HOOK,
    EXIT_HOOK,
    HTTP_CONNECTION,
    NODE,
    STUB_HOOK,
    connect_carrying,
)
from simulation.flower_internals.fleet_service import FLEET_HANDLERS, SERVICER
from simulation.flower_internals.superlink import in_memory_factories
from simulation.flower_internals.transport import FLEET_OVER_GRPC
from tests.support.flower_state import messages_at_node, replies_at_link, task_identity

__all__ = ["task_identity"]
pytestmark = pytest.mark.usefixtures("task_identity")
handlers = import_module(FLEET_HANDLERS)


class Channel:
    """gRPC channel without a network to Flower's servicer, which counts the calls."""

    def __init__(self, links, objects):
        self.servicer = import_module(SERVICER).FleetServicer(links, objects, enable_supernode_auth=False)
        self.calls = Counter()

    def unary_unary(self, path, **_):
        name = path.rpartition("/")[2]

        def call(request, metadata=(), timeout=None):
            self.calls[name] += name != "SendNodeHeartbeat"
            return getattr(self.servicer, name)(request, None)

        return call

    def subscribe(self, callback):
        pass

    def close(self):
        pass


class HttpClient:
    """Flower's client of the Fleet API without a network to its handlers, which counts the calls."""

    def __init__(self, links, objects):
        self.given = {"state": links.state(), "store": objects.store(), "enable_supernode_auth": False}
        self.calls = Counter()

    def __getattr__(self, name):
        def call(request):
            self.calls[name] += name != "SendNodeHeartbeat"
            handler = getattr(handlers, re.sub("(?<!^)([A-Z])", r"_\1", name).lower())
            return handler(request, **{key: self.given[key] for key in [*signature(handler).parameters][1:]})

        return call

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Federation:
    """SuperLink with a run, and a SuperNode that Flower's own functions serve; `link` and `node` may carry objects."""

    def __init__(self, monkeypatch, link, node):
        for name in ("pull_messages", "push_messages"):
            monkeypatch.setattr(handlers, name, getattr(handlers, name))
        if link:
            carry_objects(handlers)
        objects, links = in_memory_factories(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager())
        self.link = links.state()
        self.run_id = self.link.create_run("", "", "", {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        [task] = self.link.get_tasks()
        assert self.link.claim_task(task.task_id)
        assert self.link.activate_task(task.task_id)
        node_objects = ObjectStoreFactory(FLWR_IN_MEMORY_DB_NAME)
        self.node, self.store = NodeStateFactory(node_objects).state(), node_objects.store()
        self.node.store_run(Run.create_empty(self.run_id))
        self.channel = (Channel if FLEET_OVER_GRPC else HttpClient)(links, objects)
        places = (
            [(NODE, STUB_HOOK)] if FLEET_OVER_GRPC else [(HTTP_CONNECTION, CLIENT_HOOK), (HTTP_CONNECTION, EXIT_HOOK)]
        )
        for module, name in places:
            monkeypatch.setattr(import_module(module), name, getattr(import_module(module), name))
        if FLEET_OVER_GRPC:
            grpc = import_module("flwr.client.grpc_rere_client.connection")
            monkeypatch.setattr(grpc, "create_channel", lambda **_: self.channel)
        else:
            there = SimpleNamespace(from_server_address=lambda *_, **__: self.channel)
            monkeypatch.setattr(import_module(HTTP_CONNECTION), CLIENT_HOOK, there)
        if node:
            connect_carrying(self.store)
        self.connection = import_module(NODE)._init_connection(
            **{"server_address": "127.0.0.1:1", "insecure": True}
            | ({"transport": "grpc-rere"} if FLEET_OVER_GRPC else {})
        )

    def exchange(self, instruction, reply_content):
        """Let the ServerApp send an instruction and the SuperNode a reply: what each has received, by object."""
        with (
            no_object_id_recompute(),
            self.connection as (node_id, receive, send, _, _, pull_object, push_object, confirm),
        ):
            self.channel.calls.clear()
            message = Message(instruction, dst_node_id=node_id, message_type="query")
            message.metadata.__dict__.update(_run_id=self.run_id, _src_node_id=1)
            message.metadata.__dict__["_message_id"] = message.object_id
            session = self.link.start_session(self.run_id)
            stripped = remove_content_from_message(message)
            self.link.store_message_and_object_tree(stripped, get_object_tree(message), session)
            sent = contents_of(message)
            for name, content in sent.items():
                self.link.store_object(self.run_id, session, name, content)
            pulled = _pull_and_store_message(
                *(self.node, self.store, {}, receive, None, None, pull_object, confirm, None)
            )
            assert pulled == self.run_id
            assert {name: self.store.get(name) for name in sent} == sent
            assert self.link.object_store.get(message.object_id) is None, "it is confirmed"
            [received] = messages_at_node(self.node, is_reply=False)
            assert received.metadata.message_id == message.object_id
            assert not received.content, "as Flower has it"

            reply = Message(reply_content, reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = node_id
            _insert_message(reply, self.node, self.store)
            answered = contents_of(reply)
            _push_messages(self.node, self.store, send, push_object)
            [returned] = replies_at_link(self.link, {message.object_id}, self.run_id)
            assert returned.metadata.message_id == reply.object_id
            assert not returned.content, "as Flower has it"
            assert {name: self.link.get_object(self.run_id, name) for name in answered} == answered
        return Counter({name: count for name, count in self.channel.calls.items() if name in CALLS})


CALLS = ("PullMessages", "PullObject", "ConfirmMessageReceived", "PushMessages", "PushObject")
SMALL = RecordDict({"ask": ConfigRecord({"round": 1}), "model": ArrayRecord([np.arange(10, dtype=np.float32)])})
ANSWER = RecordDict({"answer": ConfigRecord({"loss": 0.5})})
LARGE = RecordDict({"model": ArrayRecord([np.arange(LEAST_BYTES, dtype=np.float32)])})
OBJECTS = {"small": 6, "answer": 3, "large": 5}
"""Message, its content, and in it a record of settings, or one of arrays with its array and that one's chunk."""


def contents_of(message):
    return {name: part.deflate() for name, part in get_all_nested_objects(message).items()}


def flowers(pulled, pushed):
    """Calls of Flower for messages of so many objects."""
    both = {"PullObject": pulled, "ConfirmMessageReceived": 1, "PushObject": pushed}
    return Counter({"PullMessages": 1, "PushMessages": 1, **both})


def test_a_message_and_its_reply_take_a_call_each(monkeypatch):
    federation = Federation(monkeypatch, link=True, node=True)
    assert federation.exchange(SMALL, ANSWER) == Counter({"PullMessages": 1, "PushMessages": 1})


def test_large_replies_go_object_by_object_so_that_their_upload_is_measured(monkeypatch):
    federation = Federation(monkeypatch, link=True, node=True)
    assert federation.exchange(SMALL, LARGE) == Counter({"PullMessages": 1, "PushMessages": 1, "PushObject": 5})


def test_large_instructions_go_object_by_object(monkeypatch):
    monkeypatch.setattr(fleet_calls, "MOST_BYTES", 100)
    federation = Federation(monkeypatch, link=True, node=True)
    assert federation.exchange(SMALL, ANSWER) == flowers(6, 3), "nor does it send objects that nobody may take"


@pytest.mark.parametrize("link", [False, True])
def test_with_flowers_own_on_the_other_side_calls_are_flowers(monkeypatch, link):
    assert Federation(monkeypatch, link=link, node=not link).exchange(SMALL, ANSWER) == flowers(6, 3)


def test_a_message_is_as_it_was_when_its_objects_are_taken_out():
    message = message_to_proto(Message(RecordDict(), dst_node_id=1, message_type="query"))
    before = message.SerializeToString()
    assert attach(message, {"a": b"1", "b": b"22"}, most_bytes=3) == 3
    assert message.SerializeToString() != before
    assert detach(message) == {"a": b"1", "b": b"22"}
    assert message.SerializeToString() == before
    assert attach(message, {"a": b"1", "b": b"22"}, most_bytes=2) == 0
    assert attach(message, {"a": b"1", "b": None}, most_bytes=3) == 0, "an object is missing"
    assert detach(message) == {}
    assert message.SerializeToString() == before


def test_an_error_is_pushed_as_flower_does_it():
    message = message_to_proto(Message(Error(code=1, reason="boom"), reply_to=Message(RecordDict(), 1, "query")))
    before = message.SerializeToString()
    assert attach(message, {"a": b"1"}, most_bytes=3) == 0
    assert message.SerializeToString() == before
