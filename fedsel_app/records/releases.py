"""Releases of a run with differential privacy: counted on disk before the noised model leaves the server."""

import os
from pathlib import Path
from typing import Protocol

from fedsel_app.records.files import append_rows, record_errors
from fedsel_app.records.schema import with_version

RELEASES = "releases.jsonl"


class Releases(Protocol):
    """Count of a run's releases.

    Attributes
    ----------
    count : releases so far, those of earlier processes of the run included
    """

    count: int

    def add(self) -> None:
        """Count one more. It is counted, whatever happens next, when this returns."""


class UnkeptReleases:
    """Count of releases that ends with its process, for a run that cannot be resumed."""

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        """Count one more."""
        self.count += 1


class ReleaseFile:
    """Count of releases in the run folder `path`: a line of releases.jsonl for each, which a resumed run keeps.

    A line that was cut short counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path / RELEASES
        written = self._path.read_bytes() if self._path.exists() else b""
        self._cut_short = not written.endswith(b"\n") and bool(written)
        self.count = written.count(b"\n") + self._cut_short

    def add(self) -> None:
        """Count one more. Raises RecordError if it cannot be written."""
        with record_errors(self._path), self._path.open("ab", buffering=0) as file:
            if self._cut_short:
                file.write(b"\n")
                self._cut_short = False
            append_rows(file, [with_version({"release": self.count + 1})])
            os.fsync(file.fileno())
            if not self.count:
                _sync_folder(self._path.parent)
        self.count += 1


def _sync_folder(path: Path) -> None:
    """Make the names in the folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
