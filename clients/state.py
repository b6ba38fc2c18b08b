"""What a client must remember between two messages, in files.

Flower builds the client anew for every message, so what outlives one (the error-feedback residual,
the layer shares of the last mask) is stored by partition id. The state is kept as it stood after a
round, and after the round before that: a round that is sent again, because the server was
interrupted before it closed that round, finds the state it started from the first time.
"""

import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


class StateError(RuntimeError):
    """A client's state cannot be read or written; the message names the file and what to do."""


class StateStore:
    """Arrays by client and round in one folder, as uncompressed npz files without pickle.

    Parameters
    ----------
    folder
        Made when first written. It belongs to one run: another run's rounds would be taken for its own.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def load(self, client: int, before: int) -> Arrays:
        """The arrays that `client` saved last before round `before`; empty if it never did.

        Raises
        ------
        StateError
            If the file cannot be read, or if the state of that time is no longer kept.
        """
        rounds = self._rounds(client)
        earlier = [number for number in rounds if number < before]
        if earlier:
            return _read(self._path(client, earlier[-1]))
        if before > 1 and len(rounds) > 1:
            raise StateError(
                f"Client {client} keeps its state of rounds {rounds} in {self.folder}, and none from before round "
                f"{before}. Start the run again with an empty state folder."
            )
        return {}

    def save(self, client: int, server_round: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep `arrays` as the client's state after `server_round`: wholly written, or not at all.

        Of the other rounds only the latest earlier one is kept.

        Raises
        ------
        StateError
            If the file cannot be written, for instance because the disk is full.
        """
        path = self._path(client, server_round)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(path, arrays)
            others = [number for number in self._rounds(client) if number != server_round]
            earlier = [number for number in others if number < server_round]
            for number in others:
                if number not in earlier[-1:]:
                    self._path(client, number).unlink(missing_ok=True)
        except OSError as error:
            raise StateError(
                f"Client {client} cannot write its state to {path} ({error}). Free the disk, or set 'state-dir'."
            ) from error

    def _path(self, client: int, server_round: int) -> Path:
        return self.folder / f"client-{client}-round-{server_round}.npz"

    def _rounds(self, client: int) -> list[int]:
        found = self.folder.glob(f"client-{client}-round-*.npz")
        return sorted(int(path.stem.rpartition("-")[2]) for path in found)


def _read(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise StateError(
            f"The client state {path} cannot be read ({error}). Start the run again with an empty state folder."
        ) from error


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    named: dict[str, Any] = dict(arrays)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **named)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
