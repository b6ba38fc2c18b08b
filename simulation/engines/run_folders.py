"""Folders of a run: its run folder, the clients' states within it, and the settings with which it is resumed."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from clients.state import SCHEMA, STATE_FILE, STATE_FOLDER
from fedsel_app.config import ConfigError, Value, changes_numbers
from fedsel_app.records.fedsel_folder import MARKER, is_fedsel_folder, refuse_links
from fedsel_app.records.reading import check_fields, read_object
from fedsel_app.records.run_folder import lock_run, read_checkpoint, read_config
from fedsel_app.records.schema import OWN_APP, Row, Summary, score_name, without_version
from fedsel_app.wiring.configuration import AppConfig, resolve

CLIENT_FOLDER = re.compile(r"client-\d+")
CLIENT_FILE = re.compile(rf"{STATE_FILE.pattern}|{re.escape(SCHEMA)}|round-.*\.tmp")


def stop_sentence(reason: str, folder: Path) -> str:
    """Sentence that explains how to resume a run that stopped for `reason`."""
    return f"\n{reason}; the rounds so far are kept. Go on with: fedsel run --resume {folder}\n"


def refuse_foreign_states(folder: Path, *, resume: bool) -> None:
    """Raise ConfigError if the run in `folder` would keep its clients' states in a folder that is not its own."""
    state = folder / STATE_FOLDER
    if os.path.lexists(state) and not (resume and is_fedsel_folder(state)):
        raise ConfigError(
            f"{state} exists, and the clients' states would lie there. Choose another 'out', or move it away."
        )


def discard_states(folder: Path) -> None:
    """Remove the clients' states from the folder of a finished run; an unfinished run keeps them."""
    if (folder / "summary.json").is_file():
        with locked(folder):
            remove_states(folder / STATE_FOLDER)


def resolve_resumed(folder: Path, values: Mapping[str, Value]) -> AppConfig:
    """Configuration of the interrupted run in `folder`; `values` may only change where the run takes place.

    Raises ConfigError for other settings, a folder without a run, or a run of a user's own Flower app.
    """
    if foreign := [key for key in values if changes_numbers(key) or key == "out"]:
        raise ConfigError(f"A resumed run keeps its own settings; leave out {', '.join(sorted(foreign))}.")
    folder = folder.absolute()
    before = read_config(folder)
    if before.get("data") == OWN_APP:
        raise ConfigError(
            f"The run in {folder} is one of a Flower app of your own: to continue it, give its strategy(...) "
            f"out={str(folder)!r} and resume='auto', and run the app again."
        )
    return resolve({**before, **values, "out": str(folder), "resume": True})


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the run in the folder at `path` for the block. Raises ConfigError if another process has locked it."""
    with (path / "rounds.jsonl").open("rb") as rounds:
        lock_run(rounds, path)
        yield


def completed_rounds(path: Path) -> int:
    """Number of rounds that the run in the folder at `path` keeps if it is resumed.

    Raises ConfigError if a file of the run is a symlink, or if the checkpoint cannot be read.
    """
    refuse_links(path)
    saved = read_checkpoint(path)
    return 0 if saved is None else int(saved["round"])


def read_summary(folder: Path) -> Row | None:
    """The summary of the run in `folder`, None if it is not finished. Raises ConfigError if it cannot be read."""
    path = folder / "summary.json"
    summary = read_object(path)
    if summary is None:
        return None
    try:
        summary = without_version(summary)
        check_fields(summary, Summary, ("strategy", "seed", f"target_{score_name(summary)}", "failure_count"))
    except ValueError as error:
        raise ConfigError(f"The file {path} cannot be read: {error}.") from error
    return summary


def remove_states(folder: Path) -> None:
    """Remove the states of all runs in `folder`, if the folder is fedsel's. Other files stay."""
    if not is_fedsel_folder(folder):
        return
    with suppress(OSError):
        for run in _folders(folder):
            for client in _folders(run):
                if CLIENT_FOLDER.fullmatch(client.name):
                    for file in client.iterdir():
                        if CLIENT_FILE.fullmatch(file.name):
                            file.unlink()
                    with suppress(OSError):
                        client.rmdir()
            with suppress(OSError):
                run.rmdir()
        if os.listdir(folder) == [MARKER]:
            (folder / MARKER).unlink()
            folder.rmdir()


def _folders(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink()]
