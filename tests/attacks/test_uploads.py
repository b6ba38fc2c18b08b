"""Uploads of a client with a key: those that never finish, that are no tree, or that no memory holds."""

import hashlib
from importlib import import_module

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from simulation.operations.guard import uploads
from tests.support.link_state import Link

pytestmark = pytest.mark.usefixtures("task_identity")


@pytest.fixture
def handlers(monkeypatch):
    """Flower's functions of the Fleet API, with fedsel's in their place during a test."""
    module = import_module(uploads.HANDLERS)
    for name in ("push_messages", "push_object"):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(module, "check_abort", lambda *arguments: None)
    uploads.bound_uploads()
    return module


class Client:
    """Client with a key, which sends what it likes as its reply to the first message that it gets."""

    def __init__(self, handlers):
        self.handlers, self.link = handlers, Link()
        self.asked = self.link.ask(1)
        assert all(self.link.upload(self.asked, sender=SUPERLINK_NODE_ID))
        assert self.link.instructions() == [self.asked.metadata.message_id]
        self.objects = self.link.state.object_store

    def reply(self, size=1):
        """A reply of so many random numbers."""
        numbers = np.random.default_rng(size).normal(size=size).astype(np.float32)
        return self.signed(Message(RecordDict({"arrays": ArrayRecord([numbers])}), reply_to=self.asked))

    def signed(self, message, **said):
        said = {"_run_id": self.link.run_id, "_src_node_id": self.link.node, "_message_id": message.object_id} | said
        message.metadata.__dict__.update(said)
        return message

    def push(self, message, tree=None):
        """What the SuperLink answers to a message whose objects are said to be `tree`."""
        proto = message_to_proto(remove_content_from_message(message))
        tree = get_object_tree(message) if tree is None else tree
        node = Node(node_id=self.link.node)
        request = PushMessagesRequest(node=node, messages_list=[proto], message_object_trees=[tree])
        return self.handlers.push_messages(request=request, state=self.link.state)

    def store(self, content, name, session):
        node = Node(node_id=self.link.node)
        request = PushObjectRequest(
            node=node, run_id=self.link.run_id, session_id=session, object_id=name, object_content=content
        )
        return self.handlers.push_object(request=request, state=self.link.state).stored

    def upload(self, message):
        """Whether the SuperLink stores each object of a message, up to the first that it does not."""
        pushed, contents = self.push(message), get_all_nested_objects(message)
        stored = []
        for name in pushed.objects_to_push:
            stored.append(self.store(contents[name].deflate(), name, pushed.session_id))
            if not stored[-1]:
                break
        return stored


def named(number):
    """Name of an object."""
    return hashlib.sha256(str(number).encode()).hexdigest()


def test_replies_are_handed_out_one_at_a_time(handlers):
    """A server that cannot read one of the replies of a pull loses all of them: honest clients had failed."""
    client = Client(handlers)
    second = client.link.ask(2)
    assert all(client.link.upload(second, sender=SUPERLINK_NODE_ID))
    assert client.link.instructions() == [second.metadata.message_id]
    whole = client.reply()
    hostile = client.signed(whole, _message_id=whole.content.object_id)
    pushed, parts = client.push(hostile, get_object_tree(whole.content)), get_all_nested_objects(whole.content)
    assert all(client.store(parts[name].deflate(), name, pushed.session_id) for name in pushed.objects_to_push)
    assert all(client.link.upload(Message(RecordDict(), reply_to=second), sender=client.link.node))
    asked = [client.asked, second]
    handed = [client.link.replies(*asked)]
    asked = [message for message in asked if message.metadata.message_id not in handed[0]]
    handed.append(client.link.replies(*asked))
    assert sorted(handed) == sorted([message.metadata.message_id] for message in (client.asked, second))


def test_nobody_waits_for_an_object_that_is_not_stored(handlers):
    """The server waited for 80 minutes, and read no other client's reply meanwhile."""
    client = Client(handlers)
    name = client.push(client.reply()).objects_to_push[0]
    request = PullObjectRequest(run_id=client.link.run_id, object_id=name)
    answer = handlers.pull_object(request=request, state=client.link.state)
    assert not answer.object_found


def test_a_reply_has_the_parts_that_it_had_before(handlers):
    """With other parts, the reply counted as whole, and its first parts never came."""
    client = Client(handlers)
    reply = client.reply()
    assert client.push(reply).objects_to_push
    assert not client.push(reply, ObjectTree(object_id=reply.object_id)).objects_to_push
    assert client.link.replies(client.asked) == []


def test_a_tree_of_a_few_lines_is_not_endless(handlers):
    """60 objects of two equal parts each: the SuperLink built a tree of 2^60 objects of it."""
    client = Client(handlers)
    before, reply, tree = len(client.objects), client.reply(), ObjectTree(object_id=named(0))
    for number in range(1, 60):
        again = ObjectTree(object_id=tree.object_id)
        tree = ObjectTree(object_id=named(number), children=[tree, again])
    assert not client.push(reply, ObjectTree(object_id=reply.object_id, children=[tree])).objects_to_push
    assert len(client.objects) == before


def test_equal_objects_of_a_reply_may_repeat(handlers):
    client = Client(handlers)
    zeros = RecordDict({name: ArrayRecord([np.zeros(3), np.zeros(3)]) for name in "ab"})
    assert all(client.upload(client.signed(Message(zeros, reply_to=client.asked))))
    assert client.link.replies(client.asked) == [client.asked.metadata.message_id]


def test_a_message_to_another_client_is_refused(handlers):
    """In the server's name, a client could instruct every client whose number it knew."""
    client = Client(handlers)
    before, message = len(client.objects), client.reply()
    client.signed(message, _src_node_id=SUPERLINK_NODE_ID, _dst_node_id=client.link.node, _reply_to_message_id="")
    assert not client.push(message).objects_to_push
    assert client.link.instructions() == []
    assert len(client.objects) == before


def test_a_reply_has_a_size_that_its_question_bounds(handlers, monkeypatch):
    """4 times the size of the question, and 64 MiB: 1,000 bytes here."""
    monkeypatch.setattr(uploads, "LEAST_BYTES", 1000)
    client = Client(handlers)
    before, large = len(client.objects), client.reply(10_000)
    for _ in range(2):
        assert client.upload(large)[-1] is False
        assert len(client.objects) == before, "nothing of it is kept"
    assert client.link.replies(client.asked) == []


def test_a_reply_may_have_4_times_the_bytes_of_its_question(handlers, monkeypatch):
    monkeypatch.setattr(uploads, "LEAST_BYTES", 0)

    def size(message):
        return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())

    for numbers, fits in ((100, True), (120, False)):
        client = Client(handlers)
        reply = client.reply(numbers)
        assert (size(reply) <= 4 * size(client.asked)) == fits
        assert all(client.upload(reply)) == fits


def test_a_run_from_before_the_superlinks_start_is_finished(handlers):
    """A client that was training when the server was killed sent its reply: the server printed a KeyError."""
    client = Client(handlers)
    reply = client.signed(client.reply(), _run_id=client.link.run_id + 1)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with pytest.raises(BaseException, match=r"Run is finished\."):  # another class from release 1.42 on
        client.push(reply)
