"""Listeners of a run's records, which hear of each finished round and of the end; and the recorder that keeps none."""

from collections.abc import Callable
from typing import Any, Protocol

from fedsel_app.records.releases import Releases, UnkeptReleases
from fedsel_app.records.schema import RoundRecord, Row, as_row


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


class UnkeptRecords:
    """Recorder of a run without a run folder. It tells its `listeners` of every finished round."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.releases: Releases = UnkeptReleases()
        self._last: Row = {}

    def round(self, record: RoundRecord) -> None:
        """Tell the listeners of a finished round."""
        record.add_totals(self._last)
        self._last = as_row(record)
        for listener in self.listeners:
            listener.on_round(self._last)

    def close(self, *nothing: Any) -> None:
        """Keep nothing."""

    clients = checkpoint = finish = close
