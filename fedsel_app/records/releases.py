"""Releases of a run with differential privacy: counted on disk before the noised model leaves the server."""

import os
from pathlib import Path

from fedsel_app.records.files import append_rows, record_errors
from fedsel_app.records.schema import with_version

RELEASES = "releases.jsonl"


class Releases:
    """Count of a run's releases, in memory: for a run that cannot be resumed."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, noise_multiplier: float) -> None:
        """Count one more, with noise of this many clip norms."""
        self.count += 1


class ReleaseFile(Releases):
    """Count of releases in the run folder `path`: releases.jsonl has a line for each. A resumed run keeps the count.

    An incomplete line counts too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path / RELEASES
        written = self._path.read_bytes() if self._path.exists() else b""
        self._cut_short = not written.endswith(b"\n") and bool(written)
        self.count = written.count(b"\n") + self._cut_short

    def add(self, noise_multiplier: float) -> None:
        """Count one more, which is kept even if the process is then killed. Raises RecordError if this fails."""
        with record_errors(self._path), self._path.open("ab", buffering=0) as file:
            if self._cut_short:
                file.write(b"\n")
                self._cut_short = False
            append_rows(file, [with_version({"release": self.count + 1, "noise_multiplier": noise_multiplier})])
            os.fsync(file.fileno())
            if not self.count:
                _sync_folder(self._path.parent)
        self.count += 1


def _sync_folder(path: Path) -> None:
    """Write the names of the files in the folder to disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
