"""SuperNode with one lasting app process: this module runs instead of `flower-supernode`.

It takes the same arguments, without those for an isolation mode, for dependencies and for a port.

**Messages.** Flower's SuperNode starts a process for each message and asks for the next message every three seconds.
This one gives all messages to one app process, which has imported the app (`guard.app_runner`), and
asks more often (`waiting`).

**Upload times.** Flower uploads a reply after the client has returned it and does not report the duration. This module
measures it around the SuperNode's upload function. It writes the bytes and seconds of the last upload that was large
enough to show the rate to a file. The reply of the next training reports them (see `clients.state`). The file is
needed because the answer to a loss probe may come in between. All durations are measured on one machine, so no clocks
are compared.

**Restarts.** A SuperLink considers a killed SuperNode alive until two heartbeats are missing, and refuses its successor
until then. Flower's SuperNode gives up at the first refusal; this one tries again.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from clients.state import UPLOAD_FILE
from fedsel_app.network.links import LEAST_BYTES
from simulation.operations.guard.app_runner import AppRunner
from simulation.operations.guard.supernode import noted_interrupts, serve_messages
from simulation.operations.guard.transport import free_ports

CONNECT_TIMEOUT_S, RETRY_S = 90.0, 3.0
"""Seconds after which a refused SuperNode gives up (two heartbeats take a minute), and seconds between two tries."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_SHARE = 0.1, 2.0, 0.1
"""Least and most seconds between two calls for a message. In between, it is this share of the wait so far."""
Push = Callable[[str, bytes], None]


def measuring(push_all: Callable[..., None], file: Path) -> Callable[..., None]:
    """Wrap Flower's `push_all` so that it writes the bytes and seconds of each large upload to `file`.

    A reply is uploaded in several pushes, side by side. The shortest small push estimates the fixed delay of one (the
    round trip and the SuperLink's work). It is subtracted once, from the seconds between the begin of the first large
    push and the end of the last. At least half of these seconds count.
    """

    def push(object_contents: Iterable[tuple[str, bytes]], push_object_fn: Push, **options: Any) -> None:
        large, delays_s = list[tuple[int, float, float]](), list[float]()

        def timed(name: str, content: bytes) -> None:
            began_s = time.monotonic()
            push_object_fn(name, content)
            ended_s = time.monotonic()
            if len(content) < LEAST_BYTES:
                delays_s.append(ended_s - began_s)
            else:
                large.append((len(content), began_s, ended_s))

        push_all(object_contents, push_object_fn=timed, **options)
        if not large:
            return
        sizes, begins_s, ends_s = zip(*large, strict=True)
        lasted_s = max(ends_s) - min(begins_s)
        seconds = max(lasted_s - min(delays_s, default=0.0), lasted_s / 2)
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"bytes": sum(sizes), "seconds": seconds}), encoding="utf-8")
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


def main(on_refusal: Callable[[], None] = lambda: None) -> None:
    """Run the SuperNode until a signal ends it. `on_refusal` is called each time that the SuperLink refuses it.

    Raises RuntimeError if it is refused for too long, or during a run.
    """
    interrupts = noted_interrupts()
    sys.argv += ["--port", str(free_ports(1)[0])]  # several SuperNodes may share a machine
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
        except SystemExit as ended:
            if interrupts:
                raise RuntimeError("The SuperLink refuses this SuperNode.") from ended
            raise
        finally:
            runner.rest()


if __name__ == "__main__":
    main()
