"""SuperNode with one lasting app process: this module runs instead of `flower-supernode`.

It takes the same arguments.

**Messages.** Flower's SuperNode starts a process for each message and asks for the next message every three seconds.
This one gives all messages to one app process, which has imported the app (`guard.app_runner`), and
asks more often (`waiting`). If the command line asks for another isolation mode or for dependencies to be installed,
Flower answers the messages.

**Upload times.** Flower uploads a reply after the client has returned it and does not report the duration. This module
measures it around the SuperNode's upload function. It writes the bytes and seconds of the last upload that was large
enough to show the rate to a file. The reply of the next training reports them (see `clients.upload_time`). The file is
needed because the answer to a loss probe may come in between. All durations are measured on one machine, so no clocks
are compared.

**Restarts.** A SuperLink considers a killed SuperNode alive until two heartbeats are missing, and refuses its successor
until then. Flower's SuperNode gives up at the first refusal; this one tries again.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from clients.upload_time import UPLOAD_FILE
from fedsel_app.network.links import LEAST_BYTES
from simulation.operations.guard.app_runner import AppRunner
from simulation.operations.guard.supernode import serve_messages
from simulation.operations.guard.transport import free_ports

CONNECT_TIMEOUT_S, RETRY_S = 90.0, 3.0
"""Seconds after which a refused SuperNode gives up (two heartbeats take a minute), and seconds between two tries."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_SHARE = 0.1, 2.0, 0.1
"""Least and most seconds between two calls for a message. In between, it is this share of the wait so far."""
Push = Callable[[str, bytes], None]


class Stopwatch:
    """Stopwatch of an upload: bytes of its large pushes, and seconds in which at least one of them was in progress.

    A reply is uploaded in several pushes. The duration of the shortest small push estimates the fixed delay of each
    (the round trip and the SuperLink's work). This delay is subtracted once for each period in which the link was busy.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = 0
        self._since_s = 0.0
        self._busy_s: list[float] = []
        self._delays_s: list[float] = []
        self.bytes = 0

    @property
    def seconds(self) -> float:
        """Seconds of the transfers without the delays, but at least half of the measured time."""
        delay_s = min(self._delays_s, default=0.0)
        return sum(max(busy_s - delay_s, busy_s / 2) for busy_s in self._busy_s)

    def timed(self, push: Push) -> Push:
        """Wrap `push` so that it is measured."""

        def measured(name: str, content: bytes) -> None:
            if len(content) < LEAST_BYTES:
                began_s = time.monotonic()
                push(name, content)
                self._delays_s.append(time.monotonic() - began_s)
                return
            with self._lock:
                if not self._busy:
                    self._since_s = time.monotonic()
                self._busy += 1
            try:
                push(name, content)
            finally:
                with self._lock:
                    self.bytes += len(content)
                    self._busy -= 1
                    if not self._busy:
                        self._busy_s.append(time.monotonic() - self._since_s)

        return measured


def measuring(push_all: Callable[..., None], file: Path) -> Callable[..., None]:
    """Wrap Flower's `push_all` so that it writes the bytes and seconds of each large upload to `file`."""

    def push(object_contents: Iterable[tuple[str, bytes]], push_object_fn: Push, **options: Any) -> None:
        stopwatch = Stopwatch()
        push_all(object_contents, push_object_fn=stopwatch.timed(push_object_fn), **options)
        if not stopwatch.bytes:
            return
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"bytes": stopwatch.bytes, "seconds": stopwatch.seconds}), encoding="utf-8")
        part.replace(file)

    return push


def retrying(
    connect: Callable[..., AbstractContextManager[Any]], on_refusal: Callable[[], None] = lambda: None
) -> Callable[..., AbstractContextManager[Any]]:
    """Wrap Flower's `connect` so that it tries again for `CONNECT_TIMEOUT_S` if it is refused.

    `on_refusal` is called after each refusal.
    """

    @contextmanager
    def connection(*arguments: Any, **options: Any) -> Iterator[Any]:
        deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
        stack = ExitStack()
        while True:
            try:
                opened = stack.enter_context(connect(*arguments, **options))
                break
            except RuntimeError:  # a refusal, which Flower has logged
                on_refusal()
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(RETRY_S)
        with stack:
            yield opened

    return connection


def waiting(receive: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap Flower's `receive` so that it waits for a message."""

    def wait() -> Any:
        began_s = time.monotonic()
        while (received := receive()) is None:
            waited_s = time.monotonic() - began_s
            time.sleep(min(max(PAUSE_SHARE * waited_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
        return received

    return wait


def with_port(arguments: list[str]) -> list[str]:
    """Add a free port to the arguments if they name none, because several SuperNodes may share a machine."""
    named = any(argument.split("=")[0] == "--port" for argument in arguments)
    return arguments if named else [*arguments, "--port", str(free_ports(1)[0])]


def main(on_refusal: Callable[[], None] = lambda: None) -> None:
    """Run the SuperNode until a signal ends it. `on_refusal` is called each time that the SuperLink refuses it."""
    sys.argv[1:] = with_port(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="fedsel-") as folder:
        file = Path(folder) / "upload.json"
        os.environ[UPLOAD_FILE] = str(file)
        runner = AppRunner()
        try:
            serve_messages(
                connecting=partial(retrying, on_refusal=on_refusal),
                pushing=partial(measuring, file=file),
                waiting=waiting,
                answer=runner.answer,
            )
        finally:
            runner.rest()


if __name__ == "__main__":
    main()
