"""Replies in deployment: one call for all that a ServerApp's threads wait for."""

import math
import threading
import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.server import Grid

SHORTEST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_SHARE = 0.02, 1.0, 0.1
"""Bounds of the pause after an empty answer, and the pause as a share of the time without anything new."""
HELD_S = 1.0
"""Seconds from which an empty answer has been held by the SuperLink: then there is no pause."""


class SharedReplies:
    """Replacement of a grid's `send_and_receive`: of the threads that wait, one asks for the replies to all.

    A SuperLink of `simulation.deployment.superlink` holds the call until there is something new. Flower's own answers
    at once; it is asked again after a tenth of the time without anything new, within `SHORTEST_PAUSE_S` and
    `LONGEST_PAUSE_S`.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._changed = threading.Condition()
        self._missing: set[str] = set()
        self._found: dict[str, Message] = {}
        self._asking = False
        self._news_s = time.monotonic()

    def __call__(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send `messages` and return the replies, those within `timeout` seconds."""
        missing = set(self._grid.push_messages(messages))
        end_s = math.inf if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        self._news_s = time.monotonic()
        while missing and (left_s := end_s - time.monotonic()) > 0:
            with self._changed:
                arrived = missing & self._found.keys()
                replies += [self._found.pop(name) for name in sorted(arrived)]
                missing -= arrived
                self._missing |= missing
                if arrived:
                    continue
                if self._asking:
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
                    continue
                self._asking = True
            try:
                self._ask(left_s)
            finally:
                with self._changed:
                    self._asking = False
                    self._changed.notify_all()
        with self._changed:
            self._missing -= missing
        return replies

    def _ask(self, left_s: float) -> None:
        """Ask once for all replies that are missing, and pause after an empty answer that was not held."""
        asked_s = time.monotonic()
        with self._changed:
            missing = sorted(self._missing)
        found = list(self._grid.pull_messages(missing))
        now_s = time.monotonic()
        if found:
            with self._changed:
                self._news_s = now_s
                self._found |= {message.metadata.reply_to_message_id: message for message in found}
                self._missing -= self._found.keys()
        elif now_s - asked_s < HELD_S:
            pause_s = min(max(PAUSE_SHARE * (now_s - self._news_s), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
            time.sleep(min(pause_s, left_s))
