"""fedsel's folders: fedsel marks the folders that it makes, and removes and overwrites no others."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from fedsel_app.config import ConfigError

MARKER = ".made-by-fedsel"
"""File that marks a folder as fedsel's; a process that works in the folder locks it."""
PRIVATE = 0o700
"""Mode of folders that only their owner can open: those of runs, of clients' states and of deployments."""
RUN_FILES = (
    "rounds.jsonl",
    "config.json",
    "data.json",
    "clients.jsonl",
    "releases.jsonl",
    "result.jsonl",
    "checkpoint.npz",
    "summary.json",
    "model.npz",
    "best-model.npz",
)
"""Names under which a run writes into its folder."""


class ForeignFolderError(OSError):
    """A folder that fedsel needs exists already, but is not fedsel's."""


def make_private_folder(path: Path) -> None:
    """Make the folder `path`, which only its owner can open, and its parents. An existing folder does not change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE, exist_ok=True)


def make_fedsel_folder(path: Path) -> None:
    """Make the private folder `path` with fedsel's mark, unless it exists already.

    Raises ForeignFolderError if something else has this name: a symlink, a file, a folder with files but without the
    mark, or a folder of another user.
    """
    if is_fedsel_folder(path):
        return
    make_private_folder(path.parent)
    # The folder gets the mark before its name, so that no other process sees it without the mark.
    unnamed = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        (unnamed / MARKER).touch()
        if not path.is_symlink():
            with suppress(OSError):
                unnamed.rename(path)
        if not is_fedsel_folder(path):
            raise ForeignFolderError(
                f"{path} exists and fedsel did not make it for this user, so nothing is written or removed there. "
                "Move it away, or choose another folder."
            )
    finally:
        if unnamed.exists():
            (unnamed / MARKER).unlink(missing_ok=True)
            unnamed.rmdir()


def is_fedsel_folder(path: Path) -> bool:
    """True if `path` is a folder of this process's user with fedsel's mark, and not a symlink."""
    marker = path / MARKER
    real = path.is_dir() and not path.is_symlink() and marker.is_file() and not marker.is_symlink()
    return real and not is_anothers(path)


def is_anothers(path: Path) -> bool:
    """True if `path` exists and belongs to another user than this process's user."""
    return os.path.lexists(path) and path.lstat().st_uid != os.geteuid()


def refuse_used(path: Path) -> None:
    """Raise ConfigError if the folder at `path` contains a run, or another file that a new run would overwrite.

    The empty record files of a run that ended before it wrote its settings are not in the way.
    """
    begun = () if os.path.lexists(path / "config.json") else _empty_records(path)
    if (path / "rounds.jsonl").exists() and "rounds.jsonl" not in begun:
        raise ConfigError(f"The run folder {path} already has a run; choose another 'out' or remove it.")
    for name in RUN_FILES:
        if name not in begun and os.path.lexists(path / name):
            raise ConfigError(
                f"The run folder {path} contains '{name}', which a run would overwrite; choose another 'out'."
            )


def refuse_links(path: Path) -> None:
    """Raise ConfigError if a file of the run in the folder at `path` is a symlink: a run writes only its own files."""
    for name in RUN_FILES:
        if (path / name).is_symlink():
            raise ConfigError(
                f"The run folder {path} has a symlink '{name}'; a run can be resumed only without symlinks."
            )


def discard_empty(path: Path) -> None:
    """Remove the empty record files of a run that ended before it wrote its settings."""
    for name in _empty_records(path):
        (path / name).unlink()


def _empty_records(path: Path) -> list[str]:
    files = (path / "rounds.jsonl", path / "clients.jsonl")
    return [file.name for file in files if file.is_file() and not file.is_symlink() and not file.stat().st_size]
