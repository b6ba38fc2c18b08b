"""Run folder: config.json, data.json, the records of rounds, clients and releases, checkpoint.npz, summary.json and
the models.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import DECLARED, ConfigError, Value, changes_numbers
from fedsel_app.config.run import score_title
from fedsel_app.records.fedsel_folder import discard_empty, make_private_folder, refuse_links, refuse_used
from fedsel_app.records.files import append_rows, read_arrays, record_errors, write_arrays, write_json
from fedsel_app.records.reading import Check, check_client, check_round, read_object, read_rows
from fedsel_app.records.schema import VERSION, ClientRecord, RoundRecord, Row, as_row, score_name, with_version
from fedsel_app.records.summary import summarize

CHECKPOINT = "checkpoint.npz"
DATA = "data.json"
Model = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Parameters (N,) and BatchNorm statistics (B,)."""


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


class UnkeptRecords:
    """Recorder of a run without a run folder. Its `listeners` get every finished round, and `rows` are these rounds."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[Row], None]] = []
        self.releases = Releases()
        self.rows: list[Row] = []

    def round(self, record: RoundRecord) -> None:
        """Pass a finished round to the listeners."""
        record.add_totals(self.rows[-1] if self.rows else {})
        self.rows.append(as_row(record))
        for listener in self.listeners:
            listener(self.rows[-1])

    def close(self, *nothing: Any) -> None:
        """Do nothing."""

    clients = checkpoint = finish = close


class RunFolder:
    """Run folder, which is written during the run. What was written stays complete, even after a crash.

    Parameters
    ----------
    path : created if absent; refused if it already contains a run, unless that run is resumed
    config : the resolved settings
    resume : continue the run in the folder, and remove what it wrote after its last checkpoint
    data : what data.json records of the data, with their "digest"; None: nothing is recorded

    Attributes
    ----------
    rows : the finished rounds
    listeners : functions that get every finished round, after its row is in rounds.jsonl
    saved : the arrays of that checkpoint; None if the run starts at round 1
    releases : count of its releases with differential privacy, including those after the checkpoint
    """

    def __init__(
        self, path: Path, config: Mapping[str, Value], *, resume: bool = False, data: Mapping[str, Any] | None = None
    ) -> None:
        self.path = path
        self.config = config
        self.rows: list[Row] = []
        self.listeners: list[Callable[[Row], None]] = []
        self.saved: dict[str, NDArray[Any]] | None = None
        try:
            if resume:
                refuse_links(path)
                if is_finished(path):
                    raise ConfigError(f"The run in {path} is finished; there is nothing to resume.")
                refuse_other_settings(path, config)
                data = data and with_earlier(path, data, allowed=bool(config.get("changed-data")))
            else:
                refuse_used(path)
                make_private_folder(path)
            with ExitStack() as opened:
                # Unbuffered, because Python would try again at the end to write a line for which the disk has no room.
                self._clients = opened.enter_context((path / "clients.jsonl").open("ab", buffering=0))
                self._rounds = opened.enter_context((path / "rounds.jsonl").open("ab", buffering=0))
                lock_run(self._rounds, path)
                self.releases: Releases = ReleaseFile(path)
                if resume:
                    self._go_back()
                else:
                    refuse_used(path)  # again: before the lock, another process may have carried out a run here
                    write_json(path / "config.json", {key: value for key, value in config.items() if key != "resume"})
                if data is not None:
                    write_json(path / DATA, data)
                opened.pop_all()
        except OSError as error:
            if not resume:
                discard_empty(path)
            raise ConfigError(f"The run folder {path} cannot be written: {error}. Choose another 'out'.") from error

    def _go_back(self) -> None:
        """Resume: remove the records after the round of the checkpoint."""
        self.saved = read_checkpoint(self.path)
        completed = 0 if self.saved is None else int(self.saved["round"])
        self.rows = _truncate(self._rounds, self.path / "rounds.jsonl", check_round, completed)
        _truncate(self._clients, self.path / "clients.jsonl", check_client, completed)
        if len(self.rows) != completed:
            raise ConfigError(
                f"The run folder {self.path} has a checkpoint of round {completed} and the records of "
                f"{len(self.rows)} rounds. Start the run again with another 'out'."
            )

    def clients(self, records: Iterable[ClientRecord]) -> None:
        """Append a line for each record to clients.jsonl. Raises RecordError if that cannot be written."""
        append_rows(self._clients, (with_version(as_row(record)) for record in records))

    def round(self, record: RoundRecord) -> None:
        """Append a finished round to rounds.jsonl, with the totals up to it. Raises RecordError as `clients` does."""
        record.add_totals(self.rows[-1] if self.rows else {})
        row = as_row(record)
        self.rows.append(row)
        append_rows(self._rounds, [with_version(row)])
        for listener in self.listeners:
            listener(row)

    def checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the checkpoint, after the records up to its round are on disk."""
        self._sync()
        write_arrays(self.path / CHECKPOINT, {**arrays, "version": np.array(VERSION)})

    def _sync(self) -> None:
        for file in (self._rounds, self._clients):
            with record_errors(Path(file.name)):
                os.fsync(file.fileno())

    def finish(self, final: Model, best: Model, selections: NDArray[np.int64]) -> None:
        """Write the final model, the best one and summary.json, remove the checkpoint, and close the folder.

        `selections` are the rounds in which each client was selected, int64 (K,).
        """
        self._sync()
        for name, (parameters, buffers) in (("model.npz", final), ("best-model.npz", best)):
            write_arrays(self.path / name, {"parameters": parameters, "buffers": buffers})
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        summary = replace(summarize(self.rows, self.config, selections, final[0].size), ended=ended)
        write_json(self.path / "summary.json", with_version(as_row(summary)))
        (self.path / CHECKPOINT).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the folder, so that another process may resume the run. Raises RecordError as `clients` does."""
        with ExitStack() as closing:
            for file in (self._clients, self._rounds):
                closing.enter_context(record_errors(Path(file.name)))
                closing.callback(file.close)  # a network file system may tell only now that it could not write


Recorder = RunFolder | UnkeptRecords


def read_config(path: Path, needed: Iterable[str] = ()) -> dict[str, Value]:
    """The settings of the run in the folder at `path`, with at least those of `needed`.

    Raises ConfigError if there is no run, or a setting has a value of another type.
    """
    config = read_object(path / "config.json", needed=needed)
    if config is None:
        raise ConfigError(f"{path} has no run: there is no config.json.")
    for key, entry in DECLARED.items():
        number = isinstance(entry.default, float) and type(config.get(key)) is int
        if key in config and type(config[key]) is not type(entry.default) and not number:
            raise ConfigError(f"The file {path / 'config.json'} cannot be read: '{key}' is {config[key]!r}.")
    return config


def is_finished(path: Path) -> bool:
    """True if the folder at `path` has the summary of a run."""
    return (path / "summary.json").exists()


def refuse_other_settings(path: Path, config: Mapping[str, Value]) -> None:
    """Raise ConfigError if the run in the folder at `path` has other settings than `config`."""
    before = read_config(path)
    for key in sorted(before.keys() | config.keys()):
        if changes_numbers(key) and before.get(key) != config.get(key):
            way = "Resume it with its own settings, or choose another 'out'."
            if key == "rounds" and is_finished(path):
                way = "It is finished: to train on, start another 'out' with the arrays of its result."
            raise ConfigError(
                f"The run in {path} has '{key}' = {before.get(key)!r}, and now it would be {config.get(key)!r}. {way}"
            )


def with_earlier(path: Path, data: Mapping[str, Any], *, allowed: bool) -> Mapping[str, Any]:
    """The record of the data of a resumed run, with the digests of `earlier` data of the run in the folder at `path`.

    Raises ConfigError if they have changed, or a file that a setting names, unless this is `allowed`.
    """
    before = read_object(path / DATA) or data
    changed = [] if before.get("digest") == data["digest"] else [before.get("digest")]
    files: Mapping[str, str] = data.get("files", {})
    other = [key for key in files if before.get("files", files).get(key) != files[key]]
    changes = [f"The data of the run in {path} have changed since it began"] if changed else []
    changes += [f"The file of '{key}' has changed since the run in {path} began" for key in other]
    if changes and not allowed:
        raise ConfigError(
            f"{changes[0]}. Restore what was there, or start a run with another 'out'. To go on nevertheless, set "
            "'changed-data' to true."
        )
    earlier = [*before.get("earlier", []), *changed]
    return {**data, "earlier": earlier} if earlier else data


def read_checkpoint(path: Path) -> dict[str, NDArray[Any]] | None:
    """The checkpoint in the run folder at `path`; None if there is none.

    Raises ConfigError if it cannot be read, or has another version of the records' names.
    """
    try:
        with (path / CHECKPOINT).open("rb") as file:
            arrays = read_arrays(file)
        version = int(arrays.get("version", 1))
        number = arrays["round"]
        if number.dtype != np.int64 or number.shape != ():
            raise ValueError("its round is not a whole number")
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ConfigError(
            f"The checkpoint {path / CHECKPOINT} cannot be read ({error}). Remove it to begin again at round 1."
        ) from error
    if version != VERSION:
        raise ConfigError(
            f"The checkpoint {path / CHECKPOINT} is of version {version}, and this fedsel resumes only "
            f"version {VERSION}. Resume the run with the release of fedsel that started it, or start it again with "
            "another 'out'."
        )
    return arrays


def describe_round(row: Row, *, measured: bool = False) -> str:
    """One line about a round: its score, seconds that were simulated or `measured`, MB sent, failures and epsilon."""
    name = score_name(row)
    score = f"{score_title(name)} {row[name]:.4f}, " if name in row else ""
    failures = f", {len(row['failures'])} failed" if row["failures"] else ""
    seconds = f"{row['time_s']:.1f} {'measured' if measured else 'simulated'} s"
    epsilon = f", epsilon {row['epsilon']:.4f}" if "epsilon" in row else ""
    return f"{score}{seconds}, {row['total_uplink_bytes'] / 1e6:.3f} MB sent{failures}{epsilon}"


def read_rounds(folder: Path) -> list[Row]:
    """The rows of a run's rounds.jsonl.

    Raises ConfigError if the folder contains no run, or if the file cannot be read.
    """
    if not (folder / "rounds.jsonl").is_file():
        raise ConfigError(f"{folder} has no run: there is no rounds.jsonl.")
    return read_rows(folder / "rounds.jsonl", check_round)


def lock_run(file: Any, path: Path) -> None:
    """Lock the file until it is closed. Raises ConfigError if another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(f"The run in {path} is still going on in another process; end that first.") from None


def _truncate(file: Any, path: Path, check: Check, completed: int) -> list[Row]:
    """Cut the file after the rows up to round `completed`, and return these rows."""
    kept = []
    for row in read_rows(path, check):
        if row["round"] > completed:
            break
        kept.append(row)
    whole = path.read_bytes().splitlines(keepends=True)[: len(kept)]
    file.truncate(sum(map(len, whole)))
    return kept
