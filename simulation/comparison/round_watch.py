"""Round watch: notices a run of a comparison whose process is frozen or hangs, by the rounds that it writes.

A round may wait for a client that no longer answers, so it has twice the reply timeout: twice `reply-timeout-s` for the
first round, then twenty times the slowest round so far. If the participation policy searches, rounds differ by more
than that, so every round has as long as the first.
"""

from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.comparison.plan import PlannedRun

ROUND = "round"
TIMEOUTS = 2.0
"""Reply timeouts in a round."""


class RoundWatch:
    """Watch over one process of a run, which begins at `now_s` on the monotonic clock."""

    def __init__(self, run: PlannedRun, now_s: float) -> None:
        first_s = run.config.replies.reply_timeout_s
        self._timeouts = ReplyTimeout(first_s)
        self._least_s = first_s if run.config.participation.searches else 0.0
        self._file = run.folder / "rounds.jsonl"
        self._since_s = now_s
        self._bytes = self._written()

    def overdue_s(self, now_s: float) -> float:
        """Seconds within which the next round should have been written, if they are over; else 0."""
        before, self._bytes = self._bytes, self._written()
        if self._bytes > before:  # a resumed run shortens the file
            self._timeouts.learn(ROUND, now_s - self._since_s)
            self._since_s = now_s
        limit_s = TIMEOUTS * max(self._timeouts.longest_wait_s(ROUND), self._least_s)
        return limit_s if now_s - self._since_s > limit_s else 0.0

    def _written(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0
