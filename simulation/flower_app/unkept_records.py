"""Unkept records: the rounds of a run without a run folder, told to its listeners alone."""

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from fedsel_app.records.listeners import Listener
from fedsel_app.records.releases import Releases, UnkeptReleases
from fedsel_app.records.schema import ClientRecord, RoundRecord, Row, as_row
from strategies.roster import Roster
from strategies.run_context import Model


class UnkeptRecords:
    """Recorder that writes nothing; its `listeners` hear of every round that finishes."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._last: Row = {}
        self.releases: Releases = UnkeptReleases()

    def clients(self, records: Iterable[ClientRecord]) -> None:
        """Keep nothing of the clients."""

    def round(self, record: RoundRecord) -> None:
        """Tell the listeners of a finished round."""
        record.add_totals(self._last)
        self._last = as_row(record)
        for listener in self.listeners:
            listener.on_round(self._last)

    def checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep no checkpoint."""

    def close(self) -> None:
        """Close nothing."""

    def finish(self, final: Model, best: Model, roster: Roster) -> None:
        """Keep no model."""
