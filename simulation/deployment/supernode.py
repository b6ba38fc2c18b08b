"""SuperNode with one app process that stays: ``python -m simulation.deployment.supernode`` for `flower-supernode`.

It takes the same arguments. Flower's SuperNode starts a process for each message, and asks for the next one every three
seconds. This one hands it to an app process that has imported the app (`simulation.deployment.app_runner`), and asks
again after a tenth of the time that it has waited. Where the command line asks for another isolation, or for
dependencies to be installed, messages are answered as Flower does it.

Flower pushes a reply after the client has returned it, and does not report the duration of the push. Here it is
measured around the SuperNode's function for it. Bytes and seconds of the last upload that is large enough to show the
rate go to a file, from which the next training's reply reports them (see `clients.upload_time`): between the two there
may be the answer to a loss probe. Only durations on one machine are measured; no clocks are compared.

A SuperLink takes a SuperNode that was killed for alive until two heartbeats are missing, and refuses its successor
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
from fedsel_app.network.clock import LEAST_BYTES
from simulation.deployment.app_runner import AppRunner
from simulation.deployment.ports import free_ports
from simulation.flower_internals.supernode import serve_messages

CONNECT_TIMEOUT_S, RETRY_S = 90.0, 3.0
"""Seconds in which to try to connect, and between two tries: two heartbeats take a minute."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_SHARE = 0.1, 2.0, 0.1
"""Bounds of the time between two calls for a message, and that time as a share of the wait for one so far."""
IDLE_S = 600.0
"""Seconds without a message after which the app process is ended, to free its memory."""
Push = Callable[[str, bytes], None]


class Stopwatch:
    """Stopwatch of an upload: bytes of its large pushes, and seconds in which at least one of them was under way.

    A reply is pushed in several messages. The shortest of the small ones shows the delay of each beside its transfer
    (the round trip, and the SuperLink's own work), which is subtracted once for every time the link was busy.
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
        """Seconds of the transfer without the delays; at least half of the measured time."""
        delay_s = min(self._delays_s, default=0.0)
        return sum(max(busy_s - delay_s, busy_s / 2) for busy_s in self._busy_s)

    def timed(self, push: Push) -> Push:
        """Wrap `push` to be measured."""

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
    """Wrap Flower's `push_all` to write bytes and seconds to `file` after each large push."""

    def push(object_contents: Iterable[tuple[str, bytes]], push_object_fn: Push, **options: Any) -> None:
        stopwatch = Stopwatch()
        push_all(object_contents, push_object_fn=stopwatch.timed(push_object_fn), **options)
        if not stopwatch.bytes:
            return
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"bytes": stopwatch.bytes, "seconds": stopwatch.seconds}), encoding="utf-8")
        part.replace(file)

    return push


def retrying(connect: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
    """Wrap Flower's `connect` to try again where it is refused, for `CONNECT_TIMEOUT_S`."""

    @contextmanager
    def connection(*arguments: Any, **options: Any) -> Iterator[Any]:
        deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
        stack = ExitStack()
        while True:
            try:
                opened = stack.enter_context(connect(*arguments, **options))
                break
            except RuntimeError:  # raised for a refusal, after Flower has logged it
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(RETRY_S)
        with stack:
            yield opened

    return connection


def waiting(receive: Callable[[], Any], rest: Callable[[], None]) -> Callable[[], Any]:
    """Wrap Flower's `receive` to return only with a message; `rest` is called where there is none for long."""

    def wait() -> Any:
        began_s = time.monotonic()
        while (received := receive()) is None:
            waited_s = time.monotonic() - began_s
            if waited_s > IDLE_S:
                rest()
            time.sleep(min(max(PAUSE_SHARE * waited_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S))
        return received

    return wait


def with_port(arguments: list[str]) -> list[str]:
    """Arguments of a SuperNode with a free port for its app process, where they name none: several share a machine."""
    named = any(argument.split("=")[0] == "--port" for argument in arguments)
    return arguments if named else [*arguments, "--port", str(free_ports(1)[0])]


def main() -> None:
    """Run the SuperNode until it is ended."""
    sys.argv[1:] = with_port(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="fedsel-") as folder:
        file = Path(folder) / "upload.json"
        os.environ[UPLOAD_FILE] = str(file)
        runner = AppRunner()
        serve_messages(
            connecting=retrying,
            pushing=partial(measuring, file=file),
            waiting=partial(waiting, rest=runner.rest),
            answer=runner.answer,
        )


if __name__ == "__main__":
    main()
