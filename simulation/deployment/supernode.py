"""SuperNode that takes the time of its uploads: ``python -m simulation.deployment.supernode``, as `flower-supernode`.

Flower pushes a reply after the client has returned it, polls every three seconds, and tells nobody how long the push
took. The one place where that can be seen is the SuperNode's call of its function `HOOK`, which is wrapped here. Bytes
and seconds of the last upload that is large enough to show the rate go to a file, from which the next training's reply
reports them (see `clients.timings`): between the two there may be the answer to a loss probe. Only durations on one
machine are measured; no clocks are compared.

A SuperLink holds a SuperNode that was killed for alive until two heartbeats are missing, and refuses it so long.
Flower's gives up at the first refusal; this one asks again.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from clients.timings import UPLOAD_FILE
from fedsel_app.network.clock import LEAST_BYTES

HOOK = "push_object_contents_from_iterable"
CONNECTION_HOOK = "_init_connection"
RETURN_S, RETRY_S = 90.0, 3.0
"""How long, and how often, to ask to be let in: two heartbeats take a minute."""
Push = Callable[[str, bytes], None]


class Stopwatch:
    """The bytes of the large pushes, and the seconds in which at least one of them was under way.

    A reply is pushed in several messages. The shortest of the small ones shows what each costs beside its transfer
    (the way there and back, and the SuperLink's own work), which comes off once for every time the link was busy.
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
        """Of the transfer; at least half of the time that was taken."""
        delay_s = min(self._delays_s, default=0.0)
        return sum(max(busy_s - delay_s, busy_s / 2) for busy_s in self._busy_s)

    def timed(self, push: Push) -> Push:
        """`push`, and its time is taken."""

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


def watched(push_all: Callable[..., None], file: Path) -> Callable[..., None]:
    """Flower's `push_all`, which then writes what it took to `file`, if there was a large push."""

    def push(object_contents: Iterable[tuple[str, bytes]], push_object_fn: Push, **options: Any) -> None:
        stopwatch = Stopwatch()
        push_all(object_contents, push_object_fn=stopwatch.timed(push_object_fn), **options)
        if not stopwatch.bytes:
            return
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"bytes": stopwatch.bytes, "seconds": stopwatch.seconds}), encoding="utf-8")
        part.replace(file)

    return push


def patient(connect: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
    """Flower's `connect`, which asks again where it is refused."""

    @contextmanager
    def connection(*arguments: Any, **options: Any) -> Iterator[Any]:
        deadline_s = time.monotonic() + RETURN_S
        while True:
            with ExitStack() as stack:
                try:
                    opened = stack.enter_context(connect(*arguments, **options))
                except RuntimeError:  # how a refusal ends, after Flower has logged it
                    if time.monotonic() > deadline_s:
                        raise
                else:
                    yield opened
                    return
            time.sleep(RETRY_S)

    return connection


def main() -> None:
    """Run the SuperNode until it is ended."""
    from flwr.supernode import start_client_internal
    from flwr.supernode.cli import flower_supernode

    with tempfile.TemporaryDirectory(prefix="fedsel-") as folder:
        file = Path(folder) / "upload.json"
        os.environ[UPLOAD_FILE] = str(file)
        setattr(start_client_internal, HOOK, watched(getattr(start_client_internal, HOOK), file))
        setattr(start_client_internal, CONNECTION_HOOK, patient(getattr(start_client_internal, CONNECTION_HOOK)))
        flower_supernode()


if __name__ == "__main__":
    main()
