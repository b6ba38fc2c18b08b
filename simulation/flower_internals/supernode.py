"""SuperNode: Flower's own, with parts replaced so that one app process answers its messages and it sleeps nowhere.

- `flwr.supernode.cli.flower_supernode.start_client_internal` is called with the SuperNode's state. `serve_messages`
  replaces it, to let `app_runner` have the messages answered where Flower would start a process for each.
- `start_client_internal._init_connection` connects to the SuperLink, and its `receive` returns at once; a loop asks
  again after three seconds. `serve_messages` replaces it by one that waits for a message (`waiting`) and tries again
  where it is refused (`simulation.deployment.supernode.retrying`).
- What makes that connection depends on the release (see `fleet_connection`).
- `start_client_internal.push_object_contents_from_iterable` uploads a reply, and is replaced by one that is measured.
- `start_client_internal.time.sleep` waits half a second for the reply; `Nap` ends when it is there.
- `flower_supernode._parse_supernode_lifespan_config` gives the configuration. Where nobody asks for tasks over HTTP,
  `serve_messages` puts a secret there that nobody knows, so that no other user of the machine claims one.
- `NodeState` and the handlers of the Runtime API are called by `NodeTasks` and `NodeTask`, which keeps a reply out of
  its `msg_store` until the task is done.

Streaming calls in Flower's APIs, and an app process that stays, would replace all of it.
"""

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from inspect import signature
from typing import Any

from flwr.common.constant import ISOLATION_MODE_PROCESS, ISOLATION_MODE_SUBPROCESS, Status, SubStatus

from fedsel_app.config import Value
from simulation.flower_internals.app_process import BUNDLE, DONE
from simulation.flower_internals.fleet_connection import connect_carrying
from simulation.flower_internals.runtime_socket import answer_of, decode_request

CONNECTION_HOOK = "_init_connection"
PUSH_HOOK, SLEEP_HOOK = "push_object_contents_from_iterable", "time"
CONFIG_HOOK = "_parse_supernode_lifespan_config"
Connect = Callable[..., AbstractContextManager[Any]]


class Nap:
    """Stand-in of the module `time`: a `sleep` that `wake` ends."""

    def __init__(self) -> None:
        self._awake = threading.Event()

    def wake(self) -> None:
        """End the sleep, or else the next one."""
        self._awake.set()

    def sleep(self, seconds: float) -> None:
        """Sleep until `wake`, but not longer than `seconds`."""
        self._awake.wait(seconds)
        self._awake.clear()


class NodeTask:
    """Task of a SuperNode: one message that its app process answers through the calls of Flower's Runtime API.

    Attributes
    ----------
    kind : type of the message, once the app process has it; empty before
    """

    def __init__(self, state: Any, token: str) -> None:
        self._state = state
        self._token = token
        self._task = state.get_task_by_token(token)
        self._reply: tuple[str, Any] | None = None
        """Id and store entry of a reply that the SuperNode is not to see yet."""
        self.kind = ""

    @property
    def run_config(self) -> Mapping[str, Value]:
        """Configuration of the run, as Flower has it."""
        run = self._state.get_run(self._task.run_id)
        config: Mapping[str, Value] = self._state.get_run_series_context(run.series_id).run_config
        return config

    def alive(self) -> bool:
        """True until the task is done, or the app process has sent no heartbeats."""
        return self._state.get_task_by_token(self._token) is not None

    def call(self, name: str, request: bytes) -> bytes:
        """Carry out a call of the app process: an answer as `app_process` reads it."""
        from flwr.supercore.servicer.runtime import runtime_handlers as common
        from flwr.supernode.servicer.runtime import runtime_handlers as node

        if not self.alive():
            return b"\1The SuperNode has given up this message, as no heartbeats came."
        if name == BUNDLE:
            bundle: bytes = self._state.get_fab(self._task.fab_hash).content
            return DONE + bundle

        decoded = decode_request(name, request)
        handlers: dict[str, Callable[[], Any]] = {
            "SendTaskHeartbeat": lambda: common.send_task_heartbeat(decoded, self._state, self._task),
            "PullTaskInput": lambda: self._pull_task_input(decoded),
            "PullMessages": lambda: self._pull_messages(decoded),
            "PullObject": lambda: node.pull_object(decoded, self._state, self._task),
            "ConfirmMessageReceived": lambda: self._confirm_message_received(decoded),
            "PushMessages": lambda: self._push_messages(decoded),
            "PushObject": lambda: node.push_object(decoded, self._state, self._task),
            "PushTaskOutput": lambda: self._push_task_output(decoded),
        }
        return answer_of(handlers[name])

    def _pull_task_input(self, request: Any) -> Any:
        """The input without the bundle's content, for which the app process asks when it needs it."""
        from flwr.supernode.servicer.runtime import runtime_handlers as node

        response = node.pull_task_input(request, self._state, self._task)
        response.fab.ClearField("content")
        return response

    def _confirm_message_received(self, request: Any) -> Any:
        from flwr.supernode.servicer.runtime import runtime_handlers as node

        confirm: Callable[..., Any] = node.confirm_message_received
        task = () if len(signature(confirm).parameters) == 2 else (self._task,)  # from 1.37 on
        return confirm(request, self._state, *task)

    def _pull_messages(self, request: Any) -> Any:
        from flwr.supernode.servicer.runtime import runtime_handlers as node

        response = node.pull_messages(request, self._state, self._task)
        for message in response.messages_list:
            self.kind = message.metadata.message_type
        return response

    def _push_messages(self, request: Any) -> Any:
        """Store the reply out of the SuperNode's sight: it would wait without end for what a dead process keeps."""
        from flwr.supernode.servicer.runtime import runtime_handlers as node

        with self._state.lock_msg_store:
            response = node.push_messages(request, self._state, self._task)
            name = request.messages_list[0].metadata.message_id
            self._reply = name, self._state.msg_store.pop(name)
        return response

    def _push_task_output(self, request: Any) -> Any:
        """End the task, with a reply that is whole."""
        from flwr.supernode.servicer.runtime import runtime_handlers as node

        response = node.push_task_output(request, self._state, self._task)
        if self._reply is not None:
            name, entry = self._reply
            with self._state.lock_msg_store:
                self._state.msg_store[name] = entry
        return response

    def fail(self) -> None:
        """Answer the message with Flower's "ClientApp stopped responding."; nothing if that has been done."""
        if self.kind and not self.alive():
            return
        if self._reply is not None:
            self._state.object_store.delete(self._reply[0])
        messages = getattr(self._state, "get_messages_legacy", self._state.get_messages)  # the former from 1.41 on
        for message in messages(run_ids=[self._task.run_id], is_reply=False, limit=1):
            self._state.record_message_processing_start(message_id=message.metadata.message_id)
        self._state.finish_task(self._task.task_id, SubStatus.FAILED, "The app process ended.")
        self._state._on_task_tokens_expired([self._task])


class NodeTasks:
    """Tasks of a SuperNode, from its state: one for each message."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def pending(self) -> list[tuple[int, int]]:
        """Run ids and task ids of the messages that nobody answers yet, the earliest first."""
        tasks = self._state.get_tasks(statuses=[Status.PENDING], order_by="pending_at", ascending=True)
        return [(task.run_id, task.task_id) for task in tasks]

    def claim(self, task_id: int) -> NodeTask:
        """Take on a pending task."""
        return NodeTask(self._state, self._state.claim_task(task_id))


def serve_messages(
    connecting: Callable[[Connect], Connect],
    pushing: Callable[[Callable[..., None]], Callable[..., None]],
    waiting: Callable[[Callable[[], Any]], Callable[[], Any]],
    start_runner: Callable[[NodeTasks, Callable[[], None]], Callable[[], None]],
) -> None:
    """Run Flower's SuperNode, as its command line says, with these parts of it replaced.

    Parameters
    ----------
    connecting, pushing, waiting
        Wrap Flower's connection, upload of a reply, and `receive`.
    start_runner
        Takes the SuperNode's tasks and a function to be called after each answer; returns a function that is called
        whenever a message has been received. Not called where the command line asks for another isolation.
    """
    from flwr.supernode import start_client_internal as node

    program: Any = import_module("flwr.supernode.cli.flower_supernode")
    start, connect = node.start_client_internal, connecting(getattr(node, CONNECTION_HOOK))
    parse = getattr(program, CONFIG_HOOK)
    nap = Nap()
    arrived: list[Callable[[], None]] = []

    @contextmanager
    def connection(*arguments: Any, **options: Any) -> Iterator[Any]:
        with connect(*arguments, **options) as (node_id, receive, *between, confirm):

            def confirm_and_answer(run_id: int, message_id: str) -> None:
                confirm(run_id, message_id)
                for notice in arrived:
                    notice()

            yield (node_id, waiting(receive), *between, confirm_and_answer)

    def served_here(isolation: str, install: bool) -> bool:
        return isolation == ISOLATION_MODE_SUBPROCESS and not install

    def parse_closed() -> Any:
        config = parse()
        if served_here(config.isolation, config.runtime_dependency_install):
            config.superexec_auth_secret = secrets.token_bytes(32)
        return config

    def start_with_runner(**options: Any) -> None:
        if served_here(options["isolation"], options["runtime_dependency_install"]):
            options["isolation"] = ISOLATION_MODE_PROCESS
            arrived.append(start_runner(NodeTasks(options["state_factory"].state()), nap.wake))
        connect_carrying(options["state_factory"].objectstore_factory.store())
        start(**options)

    setattr(node, PUSH_HOOK, pushing(getattr(node, PUSH_HOOK)))
    setattr(node, CONNECTION_HOOK, connection)
    setattr(node, SLEEP_HOOK, nap)
    setattr(program, CONFIG_HOOK, parse_closed)
    program.start_client_internal = start_with_runner
    program.flower_supernode()
