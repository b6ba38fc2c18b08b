"""SuperNode of Flower, with one app process for all messages of a run, and without long sleeps.

- `start_client_internal` starts a process for each message. `serve_messages` replaces it.
- `start_client_internal.time.sleep` waits half a second for the reply to a message. Its replacement answers the waiting
  messages: `NodeMessage` reads one from the SuperNode's state and stores its answer there.
- `start_client_internal` returns if an established connection fails. It is called again, to reconnect.
- The `receive` of `start_client_internal._init_connection` returns at once, and a loop repeats it after three seconds.
  Its replacement waits for a message (`waiting`) and retries after a refusal
  (`guard.supernode_process.retrying`). Over HTTP `fleet_http_connection.flwr_exit` ends the process at the first
  refusal; here it raises an exception. `get_run` tells whether a run is over while the app process still works on one
  of its messages.
- `start_client_internal._pull_and_store_message` keeps a message whose run ends before it is received whole. Its
  replacement forgets it (`whole_alone`).
- `start_client_internal.push_object_contents_from_iterable` uploads a reply. Its replacement measures the time.
- If the SuperLink refuses a call during a run, Flower sends this process a signal by `os.kill`, and ends with 0.
  `noted_interrupts` notes that.
- `_parse_supernode_lifespan_config` gives the configuration. `serve_messages` sets a random secret there, so that no
  other user of the machine can claim a task.
- `start_client_internal._verify_fab` accepts an app of any age that a trusted key has signed. Its replacement refuses
  one that was signed before the newest of its name (`app_signature.newest_alone`).

Streaming calls and an app process that stays, both in Flower, would replace this file.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Message
from flwr.common import serde
from flwr.common.constant import ISOLATION_MODE_PROCESS, Status, SubStatus
from flwr.common.logger import update_console_handler
from flwr.proto.message_pb2 import Context
from flwr.proto.runtime_pb2 import PullTaskInputResponse, PushAppMessagesRequest
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.nodestate.in_memory_nodestate import CLIENT_APP_CRASHED_ERROR
from flwr.supernode.start_client_internal import _insert_message

from fedsel_app.config import Value
from simulation.operations.guard.app_process import object_names
from simulation.operations.guard.app_signature import NEWEST, newest_alone
from simulation.operations.guard.transport import FLEET_OVER_GRPC

NODE = "flwr.supernode.start_client_internal"
CONNECTION_HOOK, PUSH_HOOK, TIME_HOOK = "_init_connection", "push_object_contents_from_iterable", "time"
CONFIG_HOOK, VERIFY_HOOK = "_parse_supernode_lifespan_config", "_verify_fab"
PULL_HOOK = "_pull_and_store_message"
HTTP_CONNECTION, EXIT_HOOK = "flwr.supernode.fleet_http_connection", "flwr_exit"
KILL_HOOK = "kill"
RECONNECT_S = 1.0
GET_RUN = "get_run"
"""Flower's function of a connection that asks for a run."""
Connect = Callable[..., AbstractContextManager[Any]]


class NodeMessage:
    """Message that a SuperNode has received. `frames` go to the app process, and `store` receives its answer.

    Parameters
    ----------
    get_run : asks the SuperLink for a run by its id

    Attributes
    ----------
    run_id : its run
    kind : its type
    """

    def __init__(self, state: Any, message: Any, get_run: Callable[[int], Any]) -> None:
        self._state, self._message, self._get_run = state, message, get_run
        self._name = message.metadata.message_id
        self._run = state.get_run(message.metadata.run_id)
        self.run_id: int = self._run.run_id
        self.kind: str = message.metadata.message_type
        state.record_message_processing_start(message_id=self._name)

    @property
    def run_config(self) -> Mapping[str, Value]:
        """Configuration of the run."""
        config: Mapping[str, Value] = self._state.get_run_series_context(self._run.series_id).run_config
        return config

    def is_in_vain(self) -> bool:
        """True if the SuperLink says that the run is over, so that the answer has no use."""
        try:
            with suppress(Exception):  # the connection is lost
                self._get_run(self.run_id)
        except RunNotRunningException:
            return True
        return False

    def frames(self) -> Iterator[bytes]:
        """Frames that `app_process.read_message` reads."""
        context = serde.context_to_proto(self._state.get_run_series_context(self._run.series_id))
        bundle = serde.fab_to_proto(self._state.get_fab(self._run.fab_hash))
        yield PullTaskInputResponse(context=context, run=serde.run_to_proto(self._run), fab=bundle).SerializeToString()
        tree = self._state.object_store.get_object_tree(self._name)
        yield tree.SerializeToString()
        for name in object_names(tree):
            yield self._state.object_store.get(name)

    def store(self, receive: Callable[[], bytes]) -> None:
        """Receive the frames of `app_process.write_answer`, and store the answer when it is complete."""
        answer = PushAppMessagesRequest.FromString(receive())
        context = serde.context_from_proto(Context.FromString(receive()))
        [reply], [tree] = answer.messages_list, answer.message_object_trees
        objects = {name: receive() for name in object_names(tree)}
        self._state.object_store.preregister(self.run_id, tree)
        for name, content in objects.items():
            self._state.object_store.put(name, content)
        self._state.set_run_series_context(self._run.series_id, context)
        self._state.store_message(serde.message_from_proto(reply))
        self._end()

    def fail(self) -> None:
        """Store Flower's "ClientApp stopped responding." as the answer."""
        failure = Message(CLIENT_APP_CRASHED_ERROR, reply_to=self._message)
        _insert_message(failure, self._state, self._state.object_store)
        self._end()

    def forget(self) -> None:
        """Give no answer."""
        self._state.delete_messages(message_ids=[self._name])
        self._end()

    def _end(self) -> None:
        self._state.record_message_processing_end(message_id=self._name)
        self._state.object_store.delete(self._name)


def refuse(code: int, message: str) -> None:
    """Raise RuntimeError for a refusal by the SuperLink."""
    print(message, flush=True)
    raise RuntimeError(message)


def noted_interrupts() -> list[int]:
    """List to which each signal is added that Flower sends this process because the SuperLink refuses a call."""
    noted, kill = list[int](), os.kill

    def noting(process: int, number: int) -> None:
        if process == os.getpid():
            noted.append(number)
        kill(process, number)

    setattr(os, KILL_HOOK, noting)
    return noted


def take_messages(state: Any, get_run: Callable[[int], Any]) -> list[NodeMessage]:
    """Take the messages that a SuperNode has received, and end their tasks so that no process is started for them."""
    for task in state.get_tasks(statuses=[Status.PENDING]):
        state.finish_task(task.task_id, SubStatus.STOPPED, "The app process answers.")
    messages = getattr(state, "get_messages_legacy", state.get_messages)  # the former from 1.41 on
    return [NodeMessage(state, message, get_run) for message in messages(is_reply=False)]


def whole_alone(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    """Wrap Flower's `pull` so that a message whose run ends meanwhile is forgotten.

    Its answer would be sent in place of the next message's, which would have none.
    """

    def pulled(**parts: Any) -> int | None:
        run_id = pull(**parts)
        if run_id is None:
            for message in take_messages(parts["state"], parts[GET_RUN]):
                message.forget()
        return run_id

    return pulled


def serve_messages(
    connecting: Callable[[Connect], Connect],
    pushing: Callable[[Callable[..., None]], Callable[..., None]],
    waiting: Callable[[Callable[[], Any]], Callable[[], Any]],
    answer: Callable[[NodeMessage], None],
) -> None:
    """Run Flower's SuperNode with the arguments of its command line and with these parts replaced.

    Parameters
    ----------
    connecting, pushing, waiting : wrap Flower's connection, upload of a reply, and `receive`
    answer : stores the answer to a message
    """
    node: Any = import_module(NODE)
    program: Any = import_module("flwr.supernode.cli.flower_supernode")
    start, connect = node.start_client_internal, connecting(getattr(node, CONNECTION_HOOK))
    parse = getattr(program, CONFIG_HOOK)
    asking = dict[str, Callable[[int], Any]]()
    """The functions of the present connection, by their names."""

    @contextmanager
    def connection(*arguments: Any, **options: Any) -> Iterator[Any]:
        with connect(*arguments, **options) as (node_id, receive, *others):
            asking.update({each.__name__: each for each in others})
            yield (node_id, waiting(receive), *others)

    def start_answering(**options: Any) -> None:
        state = options["state_factory"].state()

        def sleep(seconds: float) -> None:
            messages = take_messages(state, asking[GET_RUN])
            for message in messages:
                answer(message)
            if not messages:
                time.sleep(seconds)

        setattr(node, TIME_HOOK, SimpleNamespace(sleep=sleep))
        while True:
            start(**options)
            time.sleep(RECONNECT_S)

    def parse_closed() -> Any:
        config = parse()
        config.isolation, config.superexec_auth_secret = ISOLATION_MODE_PROCESS, secrets.token_bytes(32)
        return config

    if not FLEET_OVER_GRPC:
        setattr(import_module(HTTP_CONNECTION), EXIT_HOOK, refuse)
    update_console_handler(colored=sys.stderr.isatty())
    setattr(node, PULL_HOOK, whole_alone(getattr(node, PULL_HOOK)))
    setattr(node, PUSH_HOOK, pushing(getattr(node, PUSH_HOOK)))
    setattr(node, CONNECTION_HOOK, connection)
    home = Path(os.environ.get("FLWR_HOME", Path.home() / ".flwr"))
    setattr(node, VERIFY_HOOK, newest_alone(getattr(node, VERIFY_HOOK), home / NEWEST))
    setattr(program, CONFIG_HOOK, parse_closed)
    program.start_client_internal = start_answering
    program.flower_supernode()
