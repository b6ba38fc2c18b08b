"""Unkept records: the rounds of a run without a run folder, told to its listeners alone."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from fedsel_app.records.schema import ClientRecord, RoundRecord, Row, as_row
from strategies.roster import Roster
from strategies.run_context import Model


class UnkeptRecords:
    """Recorder that writes nothing; each of `listeners` is called with the row of every round that finishes."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Row], None]] = []
        self._last: Row = {}

    def clients(self, records: Iterable[ClientRecord]) -> None:
        """Keep nothing of the clients."""

    def round(self, record: RoundRecord) -> None:
        """Tell the listeners of a finished round."""
        record.add_totals(self._last)
        self._last = as_row(record)
        for listen in self.listeners:
            listen(self._last)

    def checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep no checkpoint."""

    def finish(self, final: Model, best: Model, roster: Roster) -> None:
        """Keep no model."""
