"""Folders of a run: its run folder, the clients' states within it, and the settings with which it is resumed."""

import os
from collections.abc import Mapping
from pathlib import Path

from clients.state import STATE_FOLDER, remove_states
from fedsel_app.config import ConfigError, Value, changes_numbers
from fedsel_app.records.fedsel_folder import is_fedsel_folder
from fedsel_app.records.run_folder import locked, read_config
from fedsel_app.wiring.configuration import AppConfig, resolve
from simulation.flower_app.settings import refuse_own_app

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended."""


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

    Raises
    ------
    ConfigError
        For other settings, a folder without a run, or a run of a user's own Flower app.
    """
    if foreign := [key for key in values if changes_numbers(key) or key == "out"]:
        raise ConfigError(f"A resumed run keeps its own settings; leave out {', '.join(sorted(foreign))}.")
    folder = folder.absolute()
    before = read_config(folder)
    refuse_own_app(before, folder)
    return resolve({**before, **values, "out": str(folder), "resume": True})
