"""App process: it imports a client's app once and answers all messages of its SuperNode.

`guard.app_runner` starts this file as a program. It imports nothing of fedsel, so that the app's code
comes from the bundle (FAB) that the SuperLink hands out, as in Flower's `flwr-clientapp`.

A message arrives through a pipe in frames: the task's input, the tree of the message's objects, and each object. The
answer consists of the reply with its tree, the client's state, and each object. During its work the process sends an
empty frame every `BEAT_S`, so that the SuperNode can tell that it is not frozen.

It uses Flower's private functions that split a message into objects, that import an app, and that end this process with
its SuperNode. An app process of Flower's with a documented protocol would replace this file.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import cast

from flwr.app import Context, Message
from flwr.app.error import Error
from flwr.app.message import remove_content_from_message
from flwr.cli.install import install_from_fab
from flwr.clientapp import ClientApp
from flwr.clientapp.client_app import LoadClientAppError
from flwr.clientapp.utils import get_load_client_app_fn
from flwr.common import serde
from flwr.common.constant import ErrorCode
from flwr.common.logger import update_console_handler
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import PullTaskInputResponse, PushAppMessagesRequest
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable import inflatable_object, inflatable_utils
from flwr.supercore.run import Run

READY = b"ready"
"""First frame of this process."""
BEAT_S = 5.0
"""Seconds between two empty frames."""


def object_names(tree: ObjectTree) -> list[str]:
    """Names of a message's objects, each once, in the order of their frames."""
    return list(dict.fromkeys(part.object_id for part in inflatable_object.iterate_object_tree(tree)))


def read_message(pipe: Connection) -> tuple[Message, Context, Run, Fab]:
    """Read a message, the client's state before it, its run and the bundle. Raises EOFError if there are no more."""
    task = PullTaskInputResponse.FromString(pipe.recv_bytes())
    context, run = serde.context_from_proto(task.context), serde.run_from_proto(task.run)
    with suppress(ModuleNotFoundError):  # from 1.41 on
        identity = import_module("flwr.supercore.task_identity").TaskIdentity
        identity.task_id, identity.run_id, identity.node_id = 0, run.run_id, context.node_id
    tree = ObjectTree.FromString(pipe.recv_bytes())
    objects = {name: pipe.recv_bytes() for name in object_names(tree)}
    message = cast(Message, inflatable_utils.inflate_object_from_contents(tree.object_id, objects))
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message, context, run, serde.fab_from_proto(task.fab)


def write_answer(pipe: Connection, reply: Message, context: Context) -> None:
    """Write a reply and the client's state after it."""
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with inflatable_object.no_object_id_recompute():
        tree, objects = inflatable_object.get_object_tree(reply), inflatable_object.get_all_nested_objects(reply)
        messages = [serde.message_to_proto(remove_content_from_message(reply))]
        pipe.send_bytes(PushAppMessagesRequest(messages_list=messages, message_object_trees=[tree]).SerializeToString())
        pipe.send_bytes(serde.context_to_proto(context).SerializeToString())
        for name in object_names(tree):
            pipe.send_bytes(objects[name].deflate())


@contextmanager
def beating(pipe: Connection) -> Iterator[None]:
    """Send empty frames within the block."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            pipe.send_bytes(b"")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tell(error: BaseException) -> None:
    """Write an exception with its traceback and its causes to the log, and its text as one line to the terminal."""
    traceback.print_exception(error, file=sys.stdout)
    while (cause := error.__cause__) is not None and type(cause).__name__ == "ConfigError":
        error = cause  # which may name columns and values: the server is not told of it
    sys.stdout.flush()
    text = " ".join(f"{type(error).__name__}: {error}".split())
    print("".join(each if each.isprintable() else repr(each)[1:-1] for each in text), file=sys.stderr, flush=True)


def answer_over_pipe(pipe: Connection, apps: dict[str, ClientApp]) -> None:
    """Let the app answer one message; if it raises, the exception is the answer, and the process continues.

    The app is unpacked and imported the first time, and kept in `apps`.
    """
    message, context, run, fab = read_message(pipe)
    with beating(pipe):
        try:
            if fab.hash_str not in apps:
                install_from_fab(fab.content, skip_prompt=True)
                load = get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
                apps[fab.hash_str] = load(run.fab_id, run.fab_version, fab.hash_str)
            reply = apps[fab.hash_str](message=message, context=context)
        except Exception as error:  # noqa: BLE001 - it is the answer
            tell(error)
            code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
            if isinstance(error, LoadClientAppError):
                code = ErrorCode.LOAD_CLIENT_APP_EXCEPTION
            reply = Message(Error(code=code, reason=f"{type(error)}:<'{error}'>"), reply_to=message)
    write_answer(pipe, reply, context)


def main() -> None:
    """Answer messages until the SuperNode closes the pipe."""
    signal.signal(signal.SIGINT, lambda *_: sys.exit(1))
    update_console_handler(colored=sys.stderr.isatty())
    start_parent_process_monitor(int(sys.argv[2]))
    pipe, apps = Connection(int(sys.argv[1])), dict[str, ClientApp]()
    pipe.send_bytes(READY)
    with suppress(EOFError):
        while True:
            answer_over_pipe(pipe, apps)


if __name__ == "__main__":
    main()
