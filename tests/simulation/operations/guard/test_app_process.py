"""Messages and replies are unchanged after the pipe between a SuperNode and its app process."""

import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message

from fedsel_app.config import ConfigError
from simulation.operations.guard import app_process
from simulation.operations.guard.app_process import beating, read_message, tell, write_answer
from simulation.operations.guard.supernode import take_messages
from tests.support.flower_state import messages_at_node

pytestmark = pytest.mark.usefixtures("task_identity")
SAME = np.arange(6, dtype=np.float16).reshape(2, 3)
ARRAYS = [SAME, SAME, np.array(7, dtype=np.int64), np.zeros(0, np.float64)]
"""The same array twice, which is one object, an array of one number, and an empty array."""


def arrays_of(message: Message) -> list[np.ndarray]:
    return [array.numpy() for array in message.content["model"].values()]


def answer(pipe: Connection) -> tuple[Message, Context, Run, Fab, Message]:
    """Answer one message with its own arrays, and the number of messages so far as the client's state."""
    message, context, run, fab = read_message(pipe)
    context.state["seen"] = ConfigRecord({"messages": 1})
    reply = Message(RecordDict({"model": ArrayRecord(arrays_of(message))}), reply_to=message)
    write_answer(pipe, reply, context)
    return message, context, run, fab, reply


def test_a_message_and_its_answer_are_as_they_were():
    objects = ObjectStoreFactory()
    state, store = NodeStateFactory(objects).state(), objects.store()
    state.set_node_id(7)
    bundle = Fab(sha256(b"app").hexdigest(), b"app", {})
    run = Run.create_empty(1)
    run.fab_hash, run.series_id = bundle.hash_str, 5
    state.store_run(run)
    state.store_fab(bundle)
    state.set_run_series_context(5, Context(1, 7, {"partition-id": 2}, RecordDict(), {"rounds": 3}, 5))
    asked = Message(RecordDict({"model": ArrayRecord(ARRAYS)}), dst_node_id=7, message_type="train")
    asked.metadata.__dict__.update(_run_id=1, _src_node_id=1)
    state.create_task(task_type=TaskType.CLIENT_APP, run_id=1, fab_hash=bundle.hash_str)
    _insert_message(asked, state, store)

    [received] = take_messages(state, int)
    assert take_messages(state, int) == [], "it is answered once"
    assert (received.run_id, received.kind, received.run_config) == (1, "train", {"rounds": 3})
    ours, theirs = Pipe()
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer, theirs)
        for frame in received.frames():
            ours.send_bytes(frame)
        received.store(ours.recv_bytes)
        message, context, ran, fab, reply = answering.result()
    assert (message.metadata.message_id, ran.run_id, fab.content) == (asked.metadata.message_id, 1, b"app")
    assert context.node_config == {"partition-id": 2}
    for sent, arrived in zip(ARRAYS, arrays_of(message), strict=True):
        assert (arrived.dtype, arrived.shape, arrived.tobytes()) == (sent.dtype, sent.shape, sent.tobytes())

    [stored] = messages_at_node(state, is_reply=True)
    assert stored.metadata.message_id == reply.object_id
    assert stored.metadata.reply_to_message_id == asked.metadata.message_id
    assert not stored.content, "as Flower has it"
    for name, part in get_all_nested_objects(reply).items():
        assert store.get(name) == part.deflate()
    assert asked.metadata.message_id not in store
    assert state.get_run_series_context(5).state["seen"]["messages"] == 1


def test_the_log_has_the_causes_of_an_exception_and_the_terminal_its_text(capsys):
    try:
        try:
            raise ValueError("has 'Rom'")
        except ValueError as cause:
            raise TypeError("has \x1b[31m\n[see the log]") from cause
    except TypeError as error:
        tell(error)
    log, terminal = capsys.readouterr()
    assert "ValueError: has 'Rom'" in log
    assert terminal == "TypeError: has \\x1b[31m [see the log]\n"
    told = ConfigError("Its data cannot be used: see the client's log.")
    told.__cause__ = ConfigError("It has no column 'lactate'.")
    tell(told)
    assert capsys.readouterr().err == "ConfigError: It has no column 'lactate'.\n"


def test_a_process_at_work_sends_heartbeats(monkeypatch):
    monkeypatch.setattr(app_process, "BEAT_S", 0.01)
    ours, theirs = Pipe()
    with beating(theirs):
        assert [ours.recv_bytes() for _ in range(3)] == [b""] * 3
    while ours.poll():
        ours.recv_bytes()
    time.sleep(0.1)
    assert not ours.poll()
