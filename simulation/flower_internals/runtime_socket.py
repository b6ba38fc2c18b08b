"""Runtime socket: a ServerApp's calls of its SuperLink's Runtime API through a socket of this machine.

A round of three clients takes sixty calls, and Flower's HTTP takes five milliseconds of processor time for each. The
calls, their Protobuf and the task's token are the same. Where there is no such socket, or a call fails on it, the call
is made over HTTP as Flower does, with Flower's own retries and errors.
"""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from simulation.flower_internals.app_process import RuntimePipe, message_type

SOCKET = "FEDSEL_RUNTIME_SOCKET"
"""Environment variable with the socket's path, which a SuperLink hands to the processes that it starts."""
Answer = Callable[[str, str, bytes], bytes]


def decode_request(name: str, request: bytes) -> Any:
    """Decode the request of a call of the Runtime API. Raises AttributeError for an unknown name."""
    return message_type(name, "request").FromString(request)


def answer_of(handler: Callable[[], Any]) -> bytes:
    """Answer with the response of `handler`, or with its exception, as `app_process.RuntimePipe` reads it."""
    try:
        response: bytes = handler().SerializeToString()
    except Exception as error:  # noqa: BLE001 - the caller gets it
        return b"\1" + f"{type(error).__name__}: {error}".encode()
    return b"\0" + response


def serve_socket(folder: Path, answer: Answer) -> None:
    """Serve a socket in `folder`, which must be this user's alone, until the process ends.

    `answer` takes the caller's token, a call's name and its request, and returns the answer as `RuntimePipe` reads it.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "runtime"))
    listener.listen(64)
    os.environ[SOCKET] = str(folder / "runtime")

    def accept() -> None:
        while True:
            threading.Thread(
                target=_serve, args=(Connection(listener.accept()[0].detach()), answer), daemon=True
            ).start()

    threading.Thread(target=accept, name="runtime-socket", daemon=True).start()


def _serve(caller: Connection, answer: Answer) -> None:
    with caller, suppress(EOFError, OSError):
        token = caller.recv_bytes().decode()
        while True:
            name, _, request = caller.recv_bytes().partition(b"\0")
            caller.send_bytes(answer(token, name.decode(), request))


class SocketRuntime:
    """Runtime API through the socket, in as many connections as there are threads at once.

    Parameters
    ----------
    token
        The task's, which the SuperLink gave it.
    over_http
        Flower's client of the same API, for what fails here.
    """

    def __init__(self, token: str, over_http: Any) -> None:
        self._token = token
        self._over_http = over_http
        self._free: list[RuntimePipe] = []

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        return partial(self._call, name)

    def close(self) -> None:
        """Close the connections."""
        self._free.clear()
        self._over_http.close()

    def _call(self, name: str, request: Any) -> Any:
        try:
            try:
                pipe = self._free.pop()
            except IndexError:
                pipe = self._connect()
            response = getattr(pipe, name)(request)
        except (EOFError, OSError, RuntimeError):
            return getattr(self._over_http, name)(request)
        self._free.append(pipe)
        return response

    def _connect(self) -> RuntimePipe:
        connection = Client(os.environ[SOCKET], family="AF_UNIX")
        connection.send_bytes(self._token.encode())
        return RuntimePipe(connection)
