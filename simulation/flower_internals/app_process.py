"""App process: a client's app, imported once, that answers one message of its SuperNode after the other.

`simulation.deployment.app_runner` starts this file as a program. It imports nothing of fedsel, so that all code of the
app is that of the bundle (FAB) which the SuperLink hands out, as in Flower's own `flwr-clientapp`. A message goes
through the same calls of the SuperNode's Runtime API as there, as Protobuf through a pipe instead of HTTP.

Private of Flower are `pull_task_input`, `push_message` and `push_task_output` of `run_clientapp`, which make those
calls; `load_app`, which imports the app; the heartbeat, without which the SuperNode fails the message after a minute;
and the monitor that ends this process with its SuperNode. The types of requests and responses are those of Flower's
client. An app process with a documented protocol would replace them.
"""

import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, get_type_hints

from flwr.app import Context, Message
from flwr.app.error import Error
from flwr.cli.install import install_from_fab
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common.constant import ErrorCode, SubStatus
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.run import Run
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

READY, DONE, FAILED = b"ready", b"\0", b"\1"
"""First word of this process; first byte of the answer to a call."""
BUNDLE = "PullBundle"
"""Call for the bundle of the task's app, which `PullTaskInput` leaves out: this process needs it once."""


def message_type(name: str, what: str) -> Any:
    """Protobuf type of a call of the Runtime API: its "request", or its response, the "return" of Flower's client.

    Raises AttributeError for an unknown name.
    """
    return get_type_hints(getattr(RuntimeHttpClient, name))[what]


class RuntimePipe:
    """Runtime API of the SuperNode through a pipe: `RuntimePipe(pipe).PullTaskInput(request)` returns its response.

    Threads may share it. A call raises RuntimeError if the SuperNode refuses it.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        return partial(self._call, name)

    def bundle(self) -> bytes:
        """Return the bundle (FAB) of the task's app."""
        return self._ask(BUNDLE, b"")

    def _call(self, name: str, request: Any) -> Any:
        answer = self._ask(name, request.SerializeToString())
        return message_type(name, "return").FromString(answer)

    def _ask(self, name: str, request: bytes) -> bytes:
        with self._lock:
            self._pipe.send_bytes(name.encode() + b"\0" + request)
            answer = self._pipe.recv_bytes()
        if answer[:1] != DONE:
            raise RuntimeError(answer[1:].decode())
        return answer[1:]


def answer_messages(pipe: Connection) -> None:
    """Answer a message each time that the SuperNode sends a word, until it closes the pipe."""
    runtime, apps = RuntimePipe(pipe), dict[str, ClientApp]()
    pipe.send_bytes(READY)
    while True:
        try:
            pipe.recv_bytes()
        except EOFError:
            return
        answer_message(runtime, partial(import_app, runtime, apps))


def import_app(runtime: RuntimePipe, apps: dict[str, ClientApp], run: Run, fab: Fab) -> ClientApp:
    """Return the app of the bundle `fab`, asked for, unpacked and imported the first time and kept in `apps`."""
    if fab.hash_str not in apps:
        install_from_fab(runtime.bundle(), skip_prompt=True)
        load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        apps[fab.hash_str] = load(run.fab_id, run.fab_version, fab.hash_str)
    return apps[fab.hash_str]


def answer_message(runtime: Any, app_of: Callable[[Run, Fab], ClientApp]) -> None:
    """Let the app answer one message; its exception is the answer then, and the process goes on."""
    message: Message | None = None
    context: Context | None = None
    reply: Message | None = None
    status, details = SubStatus.COMPLETED, ""
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(runtime))
    heartbeat.start()
    try:
        message, context, run, fab = pull_task_input(runtime)
        reply = app_of(run, fab)(message=message, context=context)
    except Exception as error:  # noqa: BLE001 - it is the answer
        status, details = SubStatus.FAILED, f"{type(error)}:<'{error}'>"
        sys.excepthook(*sys.exc_info())
        code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        if isinstance(error, LoadClientAppError):
            code = ErrorCode.LOAD_CLIENT_APP_EXCEPTION
        if message is not None:
            reply = Message(Error(code=code, reason=details), reply_to=message)
    if reply is not None and context is not None:
        push_message(runtime, reply, context)
    heartbeat.stop()
    push_task_output(runtime, context, status, details)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))
    start_parent_process_monitor(int(sys.argv[2]))
    answer_messages(Connection(int(sys.argv[1])))
