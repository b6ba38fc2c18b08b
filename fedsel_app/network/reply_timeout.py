"""Reply timeout: longest wait for an answer, computed from the durations of earlier answers of its kind.

It only decides which clients count as frozen. As long as every answer arrives in time, no number of a run depends on
it.
"""

import math
import threading

MULTIPLE = 10.0
"""Longest wait for an answer, in multiples of the slowest answer so far."""
LEAST_S = 120.0
"""Lower bound of the longest wait in seconds, unless the timeout of the first answers is smaller."""


class ReplyTimeout:
    """Reply timeouts of a run, by the kind of question; threads may share it.

    Parameters
    ----------
    first_s : longest wait for the first answers, the setting `reply-timeout-s`; 0: no timeout
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._slowest_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def longest_wait_s(self, kind: str, answers: int = 1) -> float:
        """Longest wait for a message with `answers` of this kind, in seconds; inf: no timeout."""
        if not self._first_s:
            return math.inf
        if kind not in self._slowest_s:
            return answers * self._first_s
        return max(min(self._first_s, LEAST_S), MULTIPLE * answers * self._slowest_s[kind])

    def learn(self, kind: str, seconds: float, answers: int = 1) -> None:
        """Learn the duration of a message with `answers` of this kind: the mean of its answers."""
        with self._lock:
            self._slowest_s[kind] = max(seconds / answers, self._slowest_s.get(kind, 0.0))
