"""App processes: one process answers all messages of a run, and is replaced if it fails."""

import os
import signal
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode.nodestate import NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message, _pull_and_store_message

from simulation.operations.guard import app_process, app_runner
from simulation.operations.guard.app_runner import AppProcess, AppRunner
from simulation.operations.guard.supernode import NodeMessage, take_messages, whole_alone
from tests.support.flower_state import messages_at_node
from tests.support.logs import logged
from tests.support.tiny_app import write_app

CLIENT_APP = """
import os, signal, sys, time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
answered = 0


@app.query()
def answer(message, context):
    global answered
    answered += 1
    deed = message.content["ask"]["deed"]
    if deed == "raise":
        raise ValueError("boom")
    if deed == "exit":
        sys.exit(3)
    if deed == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if deed == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    if deed == "hang":
        time.sleep(300)
    if deed == "work":
        time.sleep(20)
    context.state["seen"] = ConfigRecord({"messages": context.state["seen"]["messages"] + 1})
    own = sorted(name for name in sys.modules if name.split(".")[0] in ("simulation", "clients", "fedsel_app"))
    found = {"pid": os.getpid(), "answered": answered, "own": own, "file": __file__}
    return Message(RecordDict({"found": ConfigRecord(found)}), reply_to=message)
"""


class Node:
    """State of a SuperNode, and the runner that answers its messages."""

    def __init__(self, bundle: bytes) -> None:
        objects = ObjectStoreFactory()
        self.state = NodeStateFactory(objects).state()
        self.store = objects.store()
        self.state.set_node_id(7)
        self.bundle = Fab(sha256(bundle).hexdigest(), bundle, {})
        self.runner = AppRunner()
        self.stopped = set[int]()

    def begin(self, run_id: int, **run_config: float) -> None:
        run = Run.create_empty(run_id)
        run.fab_id, run.fab_version, run.fab_hash = "tests/tinyapp", "1.0.0", self.bundle.hash_str
        run.series_id = run_id
        state = RecordDict({"seen": ConfigRecord({"messages": 0})})
        self.state.store_run(run)
        self.state.store_fab(self.bundle)
        self.state.set_run_series_context(run_id, Context(run_id, 7, {}, state, run_config, run_id))

    def get_run(self, run_id: int) -> None:
        """Raise the SuperLink's error if the run is stopped."""
        if run_id in self.stopped:
            raise RunNotRunningException

    def ask(self, run_id: int, deed: str) -> Message:
        """Let the runner answer a message. Returns the reply without its content, which `content` reads."""
        message = Message(RecordDict({"ask": ConfigRecord({"deed": deed})}), dst_node_id=7, message_type="query")
        message.metadata.__dict__.update(_run_id=run_id, _src_node_id=1)
        self.state.create_task(task_type=TaskType.CLIENT_APP, run_id=run_id, fab_hash=self.bundle.hash_str)
        _insert_message(message, self.state, self.store)
        [received] = take_messages(self.state, self.get_run)
        self.runner.answer(received)
        assert take_messages(self.state, self.get_run) == []
        [reply] = messages_at_node(self.state, is_reply=True)
        self.state.delete_messages()
        return reply

    def found(self, run_id: int) -> ConfigRecord:
        """Report of the app process about itself."""
        name = self.ask(run_id, "report").metadata.message_id
        tree = self.store.get_object_tree(name)
        contents = {part.object_id: self.store.get(part.object_id) for part in iterate_object_tree(tree)}
        return inflate_object_from_contents(name, contents).content["found"]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_identity: None) -> Iterator[Node]:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    node = Node(build_fab_from_disk(write_app(tmp_path / "app", CLIENT_APP)))
    yield node
    node.runner.rest()


@pytest.mark.e2e
@pytest.mark.slow
def test_one_process_answers_a_run_and_is_replaced_where_it_must_be(node: Node, tmp_path: Path, monkeypatch) -> None:
    node.begin(1)
    first = node.found(1)
    assert first["answered"] == 1
    assert first["own"] == [], "the app's code is that of its bundle alone"
    assert first["file"].startswith(str(tmp_path / "home"))
    second = node.found(1)
    assert (second["pid"], second["answered"]) == (first["pid"], 2)
    assert node.state.get_run_series_context(1).state["seen"]["messages"] == 2

    raised = node.ask(1, "raise")
    assert "boom" in raised.error.reason
    third = node.found(1)
    assert (third["pid"], third["answered"]) == (first["pid"], 4), "an exception ends its message, not the process"

    for deed in ("die", "exit"):
        assert node.ask(1, deed).error.reason == "ClientApp stopped responding."
        fresh = node.found(1)
        assert fresh["pid"] != third["pid"]
        assert fresh["answered"] == 1

    os.kill(fresh["pid"], signal.SIGKILL)
    os.waitid(os.P_PID, fresh["pid"], os.WEXITED | os.WNOWAIT)
    assert node.found(1)["answered"] == 1, "one that ended between two messages fails none"

    node.begin(2)
    other = node.found(2)
    assert other["answered"] == 1, "another run has another process"

    monkeypatch.setattr(app_runner, "LOOK_S", 0.05)
    monkeypatch.setattr(app_runner, "SILENCE_S", 2.5 * app_process.BEAT_S)
    assert not node.ask(2, "work").has_error(), "it sends heartbeats while it works"
    assert node.ask(2, "freeze").error.reason == "ClientApp stopped responding."
    assert not Path(f"/proc/{other['pid']}").exists(), "a frozen process is ended"
    assert node.found(2)["answered"] == 1


@pytest.mark.e2e
@pytest.mark.slow
def test_a_message_has_one_answer_whenever_its_process_is_killed_or_frozen(node: Node, monkeypatch) -> None:
    """The process is killed while it reads the message, while it writes its reply, and after the complete reply.

    Then it freezes between two messages, and at last it hangs. Earlier the SuperNode waited forever for the rest of a
    reply, or sent a second reply in place of the next one.
    """
    monkeypatch.setattr(app_runner, "LOOK_S", 0.05)
    node.begin(1, **{"reply-timeout-s": 3.0})
    frames, receive = NodeMessage.frames, AppProcess.receive

    def kill_at(pid: int, frame: int, name: str) -> None:
        """Kill the process before this frame is sent to it ("frames"), or after it has sent this frame ("receive")."""
        seen = count(1)

        def kill() -> None:
            if next(seen) == frame:
                os.kill(pid, signal.SIGKILL)
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

        def sent(message: NodeMessage) -> Iterator[bytes]:
            for content in frames(message):
                kill()
                yield content

        def received(process: AppProcess) -> bytes:
            content = receive(process)
            kill()
            return content

        if name == "frames":
            monkeypatch.setattr(NodeMessage, "frames", sent)
        else:
            monkeypatch.setattr(AppProcess, "receive", received)

    for name, frame, whole in (("frames", 1, False), ("frames", 4, False), ("receive", 1, False), ("receive", 5, True)):
        pid = node.found(1)["pid"]
        kill_at(pid, frame, name)
        reply = node.ask(1, "report")
        assert reply.has_error() != whole, (name, frame)
        monkeypatch.setattr(NodeMessage, "frames", frames)
        monkeypatch.setattr(AppProcess, "receive", receive)

    frozen = node.found(1)["pid"]
    os.kill(frozen, signal.SIGSTOP)
    with logged("flwr") as log:
        with monkeypatch.context() as brief:
            brief.setattr(app_runner, "SILENCE_S", 1.0)
            assert node.ask(1, "report").error.reason == "ClientApp stopped responding."
        assert node.found(1)["answered"] == 1

        assert node.ask(1, "hang").error.reason == "ClientApp stopped responding."
        assert node.found(1)["answered"] == 1

        node.begin(2, **{"reply-timeout-s": 0.0})
        node.stopped.add(2)
        monkeypatch.setattr(app_runner, "ASK_S", 0.2)
        assert node.ask(2, "hang").error.reason == "ClientApp stopped responding."
        assert node.found(1)["answered"] == 1, "the next run need not wait"
        said = log()
    assert "The app process is replaced because it sends no heartbeats. Its message has failed." in said
    assert "The app process is replaced because it has not answered within " in said
    assert "The app process is replaced because its run is over. Its message has failed." in said


@pytest.mark.usefixtures("task_identity")
@pytest.mark.parametrize(("error", "over"), [(None, False), (ConnectionError, False), (RunNotRunningException, True)])
def test_a_message_is_in_vain_only_if_the_superlink_says_that_its_run_is_over(error, over) -> None:
    def get_run(run_id: int) -> None:
        if error:
            raise error

    state = Mock(get_run=lambda run_id: Run.create_empty(run_id))
    message = Message(RecordDict(), dst_node_id=7, message_type="train")
    message.metadata.__dict__.update(_run_id=1)
    assert NodeMessage(state, message, get_run).is_in_vain() is over


@pytest.mark.parametrize("lost", ["pull_object", "confirm_message_received"])
def test_a_message_whose_run_ends_before_it_is_received_whole_has_no_answer(node: Node, lost: str) -> None:
    """Its answer was sent in place of the next run's enrolment, which the restarted server then awaited in vain."""

    def over(*arguments: object) -> None:
        raise RunNotRunningException

    node.begin(1)
    message = Message(RecordDict({"ask": ConfigRecord()}), dst_node_id=7, message_type="train")
    message.metadata.__dict__.update(_run_id=1, _src_node_id=1)
    message.metadata.__dict__["_message_id"] = message.object_id
    contents = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    parts = {"receive": lambda: (message, get_object_tree(message)), "get_run": node.get_run, "get_fab": None}
    parts |= {"pull_object": lambda run_id, name: contents[name], "confirm_message_received": lambda *_: None}
    parts |= {"node_config": {}, "trusted_entities": None, "state": node.state, "object_store": node.store}
    assert whole_alone(_pull_and_store_message)(**parts | {lost: over}) is None
    assert (take_messages(node.state, node.get_run), len(node.store)) == ([], 0)
    assert whole_alone(_pull_and_store_message)(**parts) == 1
    assert len(take_messages(node.state, node.get_run)) == 1
