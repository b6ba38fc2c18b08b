"""Long polling: calls for messages that a SuperLink holds until a message has arrived whole."""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

Key = tuple[str, int]
MOST_HELD = 500
"""Calls held at once; further ones are answered at once. The SuperLink has threads for twice as many."""
MOST_UPLOADS = 100_000
"""Uploads that are remembered; the oldest beyond that are those of senders that have died."""
QUIET_S = 180.0
"""Seconds without a further object after which Flower gives an upload up: `OBJECT_PUSH_SESSION_TTL_SECONDS`."""


class Watch:
    """Watch for one arrival."""

    def __init__(self, slots: threading.Semaphore) -> None:
        self._slots = slots
        self._over = threading.Event()
        self.arrived = False

    def end(self) -> None:
        """End the wait."""
        self._over.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for an arrival since the watch began. Returns False without one, or with too many other waits."""
        if not self._slots.acquire(blocking=False):
            return self.arrived
        try:
            self._over.wait(timeout_s)
        finally:
            self._slots.release()
        return self.arrived


class Arrivals:
    """Arrivals of messages, by key; threads may share it."""

    def __init__(self, most: int = MOST_HELD) -> None:
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(most)
        self._watches: dict[Key, set[Watch]] = {}

    @contextmanager
    def watch(self, key: Key) -> Iterator[Watch]:
        """Watch for arrivals at `key` within the block."""
        watch = Watch(self._slots)
        with self._lock:
            self._watches.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                left = self._watches[key] - {watch}
                self._watches[key] = left
                if not left:
                    del self._watches[key]

    def announce(self, key: Key) -> None:
        """End the waits at `key`."""
        with self._lock:
            for watch in self._watches.get(key, ()):
                watch.arrived = True
                watch.end()


@dataclass
class Upload:
    """Upload of messages in several objects.

    Attributes
    ----------
    missing : objects that are not stored yet
    keys : where to announce the upload
    messages : ids of its instructions, and of the instructions that its replies answer
    latest_s : monotonic time of its last object
    """

    missing: set[str]
    keys: set[Key]
    messages: set[str]
    latest_s: float


class Uploads:
    """Uploads of messages; an upload is announced when its last object is stored."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Upload] = OrderedDict()

    def begin(self, session: str, missing: Sequence[str], keys: Set[Key], message: str) -> None:
        """Begin the upload of `message`, whose objects `missing` are not stored yet, to be announced at `keys`."""
        with self._lock:
            upload = self._open.setdefault(session, Upload(set(), set(), set(), 0.0))
            upload.missing.update(missing)
            upload.keys.update(keys)
            upload.messages.add(message)
            while len(self._open) > MOST_UPLOADS:
                self._open.popitem(last=False)
        self._take_notice(session)

    def stored(self, session: str, object_id: str) -> None:
        """Take notice of an object that is stored."""
        with self._lock:
            if session not in self._open:
                return
            self._open[session].missing.discard(object_id)
        self._take_notice(session)

    def under_way(self) -> set[str]:
        """Messages of which an object is missing and another was stored within `QUIET_S`.

        One who pulls such a message sleeps for a second or more before he asks again for the object, and for as long
        gets no other message: if the sender has died, until the upload is given up. Then it is an error at once.
        """
        since_s = time.monotonic() - QUIET_S
        with self._lock:
            latest = takewhile(lambda upload: upload.latest_s > since_s, reversed(self._open.values()))
            return {message for upload in latest for message in upload.messages}

    def _take_notice(self, session: str) -> None:
        with self._lock:
            if session not in self._open:
                return
            if self._open[session].missing:
                self._open[session].latest_s = time.monotonic()
                self._open.move_to_end(session)
                return
            keys = self._open.pop(session).keys
        for key in keys:
            self._arrivals.announce(key)
