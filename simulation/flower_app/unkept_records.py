"""Unkept records: the recorder of a run without a run folder."""

from typing import Any

from fedsel_app.records.listeners import Listener
from fedsel_app.records.releases import Releases, UnkeptReleases
from fedsel_app.records.schema import RoundRecord, Row, as_row


class UnkeptRecords:
    """Recorder that writes nothing. It tells its `listeners` of every finished round."""

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
