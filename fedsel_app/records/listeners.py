"""Listeners of a run's records: they hear of each finished round, and of the end."""

from collections.abc import Callable
from typing import Protocol

from fedsel_app.records.schema import Row


class Listener(Protocol):
    """Listener of a run."""

    def on_round(self, row: Row) -> None:
        """Hear of a finished round, once its row is in rounds.jsonl."""

    def on_end(self, summary: Row | None) -> None:
        """Hear of the end of the run, with its summary; None where it stopped before, and may go on later."""


class RoundListener:
    """Listener that calls a function with each finished round."""

    def __init__(self, function: Callable[[Row], None]) -> None:
        self.on_round = function

    def on_end(self, summary: Row | None) -> None:
        """Do nothing at the end."""
