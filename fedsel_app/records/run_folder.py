"""The run folder: config.json, rounds.jsonl, clients.jsonl, checkpoint.npz, summary.json, model.npz, best-model.npz."""

import fcntl
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.own_folder import refuse_links, refuse_used
from fedsel_app.records.summary import summarize

CHECKPOINT = "checkpoint.npz"
PLACE = ("out", "resume", "state-dir", "workers", "ray-address", "connect-timeout-s", "checkpoint-every")
"""Settings that a resumed run may have otherwise: they change where it runs, and no number."""


Model = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Parameters (N,) and BatchNorm statistics (B,)."""


class RecordError(OSError):
    """A run cannot be written down any further; the message names the file and says what to do."""


class Counts(Protocol):
    """Where the number of times each client was selected is read."""

    selections: NDArray[np.int64]


class RunFolder:
    """Writes a run down as it goes; everything that was written stays whole, whatever happens next.

    Parameters
    ----------
    path : created if absent; refused if it already holds a run, unless that run is resumed
    config : the resolved settings
    resume : take up the run in the folder: what it wrote after its last checkpoint is dropped

    Attributes
    ----------
    rows : the finished rounds
    listeners : called with the row of every round that finishes
    saved : the arrays of that checkpoint; None where the run begins at its beginning
    """

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Value],
        *,
        resume: bool = False,
    ) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self.saved: dict[str, NDArray[Any]] | None = None
        self._config = config
        try:
            if resume:
                refuse_links(path)
                refuse_changed(path, config)
            else:
                refuse_used(path)
                path.mkdir(parents=True, exist_ok=True)
            # Without a buffer of their own: a line that the disk has no room for would be tried again at the end.
            self._clients = (path / "clients.jsonl").open("ab", buffering=0)
            self._rounds = (path / "rounds.jsonl").open("ab", buffering=0)
            _lock(self._rounds, path)
            if resume:
                self._go_back()
            else:
                self._write_json("config.json", {key: value for key, value in config.items() if key != "resume"})
        except OSError as error:
            raise ConfigError(f"The run folder {path} cannot be written: {error}. Choose another 'out'.") from error

    def _go_back(self) -> None:
        """Cut the records where the checkpoint was taken."""
        self.saved = read_checkpoint(self.path)
        completed = 0 if self.saved is None else int(self.saved["round"])
        self.rows = _cut(self._rounds, self.path / "rounds.jsonl", completed)
        _cut(self._clients, self.path / "clients.jsonl", completed)
        if len(self.rows) != completed:
            raise ConfigError(
                f"The run folder {self.path} has a checkpoint of round {completed} and the records of "
                f"{len(self.rows)} rounds. Start the run anew with another 'out'."
            )

    def client(self, row: Mapping[str, Any]) -> None:
        """Append what is known of one client to clients.jsonl. Raises RecordError if that cannot be written."""
        _append(self._clients, row)

    def round(self, row: dict[str, Any]) -> None:
        """Append a finished round to rounds.jsonl, with the totals up to it. Raises RecordError as `client` does."""
        before = self.rows[-1] if self.rows else {}
        for total, part in (
            ("time_s", "round_s"),
            ("total_uplink_bytes", "uplink_bytes"),
            ("total_uplink_value_bytes", "uplink_value_bytes"),
        ):
            row[total] = before.get(total, 0) + row.get(part, 0)
        self.rows.append(row)
        _append(self._rounds, row)
        for listen in self.listeners:
            listen(row)

    def checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the checkpoint; the records up to its round are on disk before it."""
        for file in (self._rounds, self._clients):
            with _telling(Path(file.name)):
                os.fsync(file.fileno())
        self._write_arrays(CHECKPOINT, arrays)

    def finish(self, final: Model, best: Model, roster: Counts) -> None:
        """Write the final model, the best one and summary.json; the checkpoint has done its duty."""
        for name, (parameters, buffers) in (("model.npz", final), ("best-model.npz", best)):
            self._write_arrays(name, {"parameters": parameters, "buffers": buffers})
        self._write_json("summary.json", summarize(self.rows, self._config, roster.selections, final[0].size))
        (self.path / CHECKPOINT).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let go of the folder, so that another process may take up the run."""
        self._rounds.close()
        self._clients.close()

    def _write_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        named: dict[str, Any] = dict(arrays)
        with _telling(self.path / name), _replacing(self.path / name) as file:
            np.savez(file, **named)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        with _telling(self.path / name), _replacing(self.path / name) as file:
            file.write((json.dumps(_plain(content), indent=2) + "\n").encode())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the run in the folder at `path`. Raises ConfigError if another process is at work on it."""
    with (path / "rounds.jsonl").open("rb") as rounds:
        _lock(rounds, path)
        yield


def read_config(path: Path) -> dict[str, Value]:
    """The settings of the run in the folder at `path`. Raises ConfigError if there is none."""
    try:
        config: dict[str, Value] = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} holds no run that can be taken up: {error}.") from error
    return config


def refuse_changed(path: Path, config: Mapping[str, Value]) -> None:
    """Raise ConfigError if the run in the folder at `path` is finished, or has other settings than `config`."""
    if (path / "summary.json").exists():
        raise ConfigError(f"The run in {path} is finished; there is nothing to resume.")
    before = read_config(path)
    for key in sorted(before.keys() | config.keys()):
        if key not in PLACE and before.get(key) != config.get(key):
            raise ConfigError(
                f"The run in {path} has '{key}' = {before.get(key)!r}, and now it would be {config.get(key)!r}. "
                "Resume it with its own settings, or choose another 'out'."
            )


def read_checkpoint(path: Path) -> dict[str, NDArray[Any]] | None:
    """The checkpoint in the run folder at `path`; None if there is none. Raises ConfigError if it cannot be read."""
    try:
        with np.load(path / CHECKPOINT, allow_pickle=False) as archive:
            arrays = dict(archive)
        if arrays["round"].dtype != np.int64 or arrays["round"].shape != ():
            raise ValueError("its round is not a whole number")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"The checkpoint {path / CHECKPOINT} cannot be read ({error}). Remove it to begin again at round 1."
        ) from error
    return arrays


def describe(row: dict[str, Any]) -> str:
    """One line about a round: accuracy, simulated seconds, MB sent, failures."""
    accuracy = f"accuracy {row['accuracy']:.4f}, " if "accuracy" in row else ""
    failures = f", {len(row['failures'])} failed" if row["failures"] else ""
    return f"{accuracy}{row['time_s']:.1f} s, {row['total_uplink_bytes'] / 1e6:.3f} MB sent{failures}"


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's rounds.jsonl.

    Raises
    ------
    ConfigError
        If the folder holds no run.
    """
    if not (folder / "rounds.jsonl").is_file():
        raise ConfigError(f"{folder} holds no run: there is no rounds.jsonl.")
    return _read_lines(folder / "rounds.jsonl")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that may still be written: a last line without its end is not one yet."""
    try:
        text = path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"The records {path} cannot be read: {error}.") from error


def _cut(file: Any, path: Path, completed: int) -> list[dict[str, Any]]:
    """The rows up to round `completed`, after the file was cut behind them."""
    kept = []
    for row in _read_lines(path):
        if row.get("round", row.get("enrolled", 0)) > completed:
            break
        kept.append(row)
    whole = path.read_bytes().splitlines(keepends=True)[: len(kept)]
    file.truncate(sum(map(len, whole)))
    return kept


def _lock(file: Any, path: Path) -> None:
    """Hold the file until the process ends. Raises ConfigError if another process does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"The run in {path} is still going on in another process; end that first.") from None


def _append(file: Any, row: Mapping[str, Any]) -> None:
    """One line, handed to the system: after a crash every earlier line is whole. What did not fit is taken back."""
    line = (json.dumps(_plain(row)) + "\n").encode()
    path = Path(file.name)
    with _telling(path):
        if not os.fstat(file.fileno()).st_nlink:
            raise FileNotFoundError("it was removed while the run went on")
        before = os.fstat(file.fileno()).st_size
        try:
            while line:
                line = line[file.write(line) :]
        except OSError:
            file.truncate(before)
            raise


@contextmanager
def _telling(path: Path) -> Iterator[None]:
    """Whatever the system refuses becomes a RecordError that names `path`."""
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"{path} cannot be written: {error.strerror or error}. What was written before is whole. Free the disk or "
            f"make the folder writable, then go on with: fedsel run --resume {path.parent}"
        ) from error


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity; they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


class _replacing:
    """Open a file to write that appears, whole and on disk, only when it is closed without an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".part")

    def __enter__(self) -> Any:
        self._file = self._temporary.open("wb")
        return self._file

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                os.replace(self._temporary, self._path)
        finally:
            with suppress(OSError):
                self._file.close()
            self._temporary.unlink(missing_ok=True)
