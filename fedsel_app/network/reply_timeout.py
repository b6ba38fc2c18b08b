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


def longest_wait_s(first_s: float, slowest_s: float | None, answers: int = 1) -> float:
    """Longest wait for a message with `answers`, in seconds.

    Parameters
    ----------
    first_s : longest wait for the first answers, the setting `reply-timeout-s`; 0: no timeout
    slowest_s : slowest answer so far, or mean of a message's answers; None before the first
    """
    if not first_s:
        return math.inf
    if slowest_s is None:
        return answers * first_s
    return max(min(first_s, LEAST_S), MULTIPLE * answers * slowest_s)


class ReplyTimeout:
    """Reply timeouts of a run, by the kind of question; threads may share it.

    Parameters
    ----------
    first_s : see `longest_wait_s`
    """

    def __init__(self, first_s: float) -> None:
        self._first_s = first_s
        self._slowest_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def longest_wait_s(self, kind: str, answers: int = 1) -> float:
        """Longest wait for a message with `answers` of this kind, in seconds; inf: no timeout."""
        return longest_wait_s(self._first_s, self._slowest_s.get(kind), answers)

    def learn(self, kind: str, seconds: float, answers: int = 1) -> None:
        """Learn the duration of a message with `answers` of this kind."""
        with self._lock:
            self._slowest_s[kind] = max(seconds / answers, self._slowest_s.get(kind, 0.0))
