"""Client state in files, which a client needs in a later message.

Flower builds a new client for every message. So files keep the state by run, partition id and round: the residual of
error feedback, the layer shares of the last mask and the solver's state. Other files keep the schema of the data that
the server stated when the client enrolled: what it asked, and what the data fitted. The server may have lost a reply,
or may have been interrupted and have returned to its checkpoint. So every instruction says what the server knows of the
client's earlier rounds, and the client continues from there. It drops states of rounds that the server does not know.
It stores the state after a lost reply and the state after an aggregated reply separately.

In deployment the SuperNode measures the client's uploads, and one more file has the last (`last_upload`).
"""

import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import is_anothers, make_fedsel_folder
from fedsel_app.records.files import MachineFault, NpzError, read_arrays

STATE_FOLDER = "fedsel-state"
"""Name of fedsel's folder with the states of clients by run."""
SCHEMA = "schema.npz"
QUESTION = "question.npz"
LOCAL = "local/"
"""Prefix of the names of arrays of the model that stay with the client (setting 'local-layers')."""
STATE_FILE = re.compile(r"round-([1-9][0-9]{0,17})\.npz")

Arrays = dict[str, NDArray[Any]]
UPLOAD_FILE = "FEDSEL_UPLOAD_FILE"
"""Environment variable with the path of a JSON file, {"bytes", "seconds"}, which the SuperNode writes."""


class StateError(RuntimeError):
    """The state of a client cannot be read. The message names the file and says what to do."""


@dataclass(frozen=True)
class ClientHistory:
    """Client history: what the server knows of a client's earlier rounds; 0 is never."""

    last_instructed: int = 0
    """Last round in which the server asked this client to train."""
    last_aggregated: int = 0
    """Last round whose reply the server aggregated."""
    last_checkpoint: int = 0
    """Round of the server's checkpoint, to which it may go back."""


class StateStore:
    """State store: arrays in uncompressed npz files without pickle; one folder per client, one file per round.

    Parameters
    ----------
    folder : created at the first write; a folder of fedsel if it contains the folders of runs (`records.fedsel_folder`)
    begins_anew : True if a client without its state may continue: it fails once, so that the server knows, and then has
        an empty state. If False, it always fails.
    """

    def __init__(self, folder: str | Path, *, begins_anew: bool = False, fedsel_folder: Path | None = None) -> None:
        self.folder = Path(folder)
        self._begins_anew = begins_anew
        self._fedsel_folder = fedsel_folder

    def of_run(self, key: str) -> "StateStore":
        """The store of one run, in a folder of its own. Raises ValueError unless the key consists of letters and
        digits.
        """
        if not re.fullmatch(r"[0-9A-Za-z]{1,64}", key):
            raise ValueError(f"A run's key must have up to 64 letters and digits. Got {key!r}.")
        return StateStore(self.folder / key, begins_anew=self._begins_anew, fedsel_folder=self.folder)

    def recall(self, client: int, history: ClientHistory) -> tuple[Arrays, Arrays]:
        """Read the client's state after its last aggregated reply, and the state after a later lost reply.

        Each is empty if it does not exist.

        Raises StateError if a file cannot be read or belongs to another user, or if the needed state is missing.
        """
        if self._fedsel_folder is not None and is_anothers(self._fedsel_folder):
            raise StateError(
                f"The clients' states in {self._fedsel_folder} belong to another user, so client {client} reads none"
                f" of them. Set 'state-dir' to another folder."
            )
        rounds = self._rounds(client)
        aggregated = [number for number in rounds if number <= history.last_aggregated]
        unacknowledged = [number for number in rounds if history.last_aggregated < number <= history.last_instructed]
        if history.last_aggregated and not rounds:
            self._state_is_gone(client, history)
        if history.last_aggregated and not aggregated:
            raise StateError(
                f"Client {client} has states of rounds {rounds} in {self.folder}, but none of round"
                f" {history.last_aggregated} or before. Start the run again with an empty state folder."
            )
        return (
            _read(self._path(client, aggregated[-1])) if aggregated else {},
            _read(self._path(client, unacknowledged[-1])) if unacknowledged else {},
        )

    def recall_local(self, client: int, history: ClientHistory) -> Arrays:
        """Arrays of the model that stay with the client, by name, as its last training left them.

        It does not matter whether the server took the update of that training. Raises StateError as `recall` does.
        """
        aggregated, unacknowledged = self.recall(client, history)
        return local_of(unacknowledged or aggregated)

    def save(self, client: int, server_round: int, arrays: Mapping[str, NDArray[Any]], history: ClientHistory) -> None:
        """Save `arrays` as the client's state after `server_round`, completely or not at all.

        It keeps the states that `recall` may need later: those of rounds since the server's checkpoint, and the last
        one that is not later than the checkpoint and the last aggregated reply.

        Raises MachineFault if the file cannot be written.
        """
        path = self._path(client, server_round)
        with self._writing(path):
            _write(path, arrays)
            others = [number for number in self._rounds(client) if number != server_round]
            acknowledged = min(history.last_checkpoint, history.last_aggregated)
            oldest = max((number for number in others if number <= acknowledged), default=0)
            for number in others:
                if not oldest <= number <= history.last_instructed:
                    self._path(client, number).unlink(missing_ok=True)

    def keep_schema(self, client: int, schema: str, file: str = SCHEMA) -> None:
        """Keep what the server states of the client's own data. Raises MachineFault as `save` does."""
        path = self._path(client, file)
        with self._writing(path):
            _write(path, {"schema": np.frombuffer(schema.encode(), np.uint8)})

    def question(self, client: int) -> str | None:
        """What the server stated as it asked last in this run, whether the data fitted or not."""
        path = self._path(client, QUESTION)
        return read_schema_file(path) if path.exists() else None

    def schema(self, client: int) -> str:
        """What the server has stated in this run. Raises StateError if it has not, or the file cannot be read."""
        path = self._path(client, SCHEMA)
        if not path.exists():
            raise StateError(f"Client {client} has lost the schema of this run, {path}. Submit the run again.")
        return read_schema_file(path)

    def last_schema(self, client: int) -> Path | None:
        """File of what a server stated last in any of the runs in this folder; None if there is none."""
        files = self.folder.glob(f"*/client-{client}/{SCHEMA}")
        return max(files, key=lambda path: path.stat().st_mtime_ns, default=None)

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Make the folder of a file. An OSError in the block becomes a MachineFault."""
        try:
            if self._fedsel_folder is not None:
                make_fedsel_folder(self._fedsel_folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            yield
        except OSError as error:
            client = path.parent.name.removeprefix("client-")
            raise MachineFault(
                f"Client {client} cannot write its state to {path} ({error}). Free the disk, or set 'state-dir'."
            ) from error

    def _state_is_gone(self, client: int, history: ClientHistory) -> None:
        """Raise StateError for a client that has no state, although one of its replies was aggregated."""
        advice = "Every process that trains must see the same folder; start the run again where this holds."
        if self._begins_anew:
            self.save(client, history.last_aggregated, {}, history)
            advice = "It starts with an empty state next time; if its state is elsewhere, set 'state-dir' to that."
        raise StateError(
            f"Client {client} has no state of this run in {self.folder}, and its update of round "
            f"{history.last_aggregated} was aggregated. {advice}"
        )

    def _path(self, client: int, file: int | str) -> Path:
        """Path of a client's file: of its state after a round, or of this name."""
        return self.folder / f"client-{client}" / (file if isinstance(file, str) else f"round-{file}.npz")

    def _rounds(self, client: int) -> list[int]:
        matches = (STATE_FILE.fullmatch(path.name) for path in (self.folder / f"client-{client}").glob("round-*.npz"))
        return sorted(int(match[1]) for match in matches if match)


def local_of(state: Arrays) -> Arrays:
    """The arrays of the model in a client's state, by name."""
    return {name.removeprefix(LOCAL): array for name, array in state.items() if name.startswith(LOCAL)}


def read_schema_file(path: Path) -> str:
    """The schema in a file that `StateStore.keep_schema` wrote. Raises StateError if it cannot be read."""
    return _read(path).get("schema", np.zeros(0, np.uint8)).tobytes().decode(errors="replace")


def _read(path: Path) -> Arrays:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise PermissionError("it belongs to another user")
            return read_arrays(file)
    except (OSError, NpzError) as error:
        raise StateError(
            f"The client state {path} cannot be read ({error}). Start the run again with an empty state folder."
        ) from error


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    named: dict[str, Any] = dict(arrays)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix="round-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **named)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def user_state_folder() -> Path:
    """Folder for the states of this user's clients if `state-dir` is not set (XDG Base Directory Specification).

    $XDG_STATE_HOME/fedsel, or ~/.local/state/fedsel.

    Raises ConfigError if the user has no home folder.
    """
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError(f"This user has no folder for the clients' states ({error}); set 'state-dir'.") from error
    return base / "fedsel"


def last_upload() -> tuple[int, float]:
    """Bytes and seconds of this client's last timed upload; zeros if there is none."""
    try:
        last = json.loads(Path(os.environ[UPLOAD_FILE]).read_text(encoding="utf-8"))
        sent_bytes = int(last["bytes"])
        seconds = float(last["seconds"])
    except (KeyError, OSError, ValueError, TypeError):
        return 0, 0.0
    return (sent_bytes, seconds) if sent_bytes > 0 and 0 < seconds < math.inf else (0, 0.0)
