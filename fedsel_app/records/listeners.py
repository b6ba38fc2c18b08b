"""Listeners of a run, which get each finished round and the summary, and the recorder of a run without a folder."""

from collections.abc import Callable
from typing import Any, Protocol

from fedsel_app.records.releases import Releases, UnkeptReleases
from fedsel_app.records.schema import RoundRecord, Row, as_row


class Listener(Protocol):
    """Listener of a run."""

    def on_round(self, row: Row) -> None:
        """Get a finished round, after its row is in rounds.jsonl."""

    def on_end(self, summary: Row | None) -> None:
        """Get the summary at the end of the run; None if the run stopped earlier, and can be resumed later."""


class RoundListener:
    """Listener that calls a function with each finished round."""

    def __init__(self, function: Callable[[Row], None]) -> None:
        self.on_round = function

    def on_end(self, summary: Row | None) -> None:
        """Do nothing at the end."""


class UnkeptRecords:
    """Recorder of a run without a run folder. Its `listeners` get every finished round."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.releases: Releases = UnkeptReleases()
        self._last: Row = {}

    def round(self, record: RoundRecord) -> None:
        """Pass a finished round to the listeners."""
        record.add_totals(self._last)
        self._last = as_row(record)
        for listener in self.listeners:
            listener.on_round(self._last)

    def close(self, *nothing: Any) -> None:
        """Do nothing."""

    clients = checkpoint = finish = close
