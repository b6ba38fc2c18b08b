"""Folder of a deployment on this machine: locked while its processes run, with a folder for their temporary files."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import MARKER, PRIVATE, ForeignFolderError, make_fedsel_folder


@contextmanager
def held_folder(path: Path, occupied: str) -> Iterator[Path]:
    """Make fedsel's folder `path`, and lock it for the block, with an empty private folder ``tmp`` in it: the value.

    ``tmp`` is removed at the end; that of a killed process is removed first.

    Raises ConfigError if the folder is not fedsel's, or with the sentence `occupied` if another process has locked it.
    """
    try:
        make_fedsel_folder(path)
    except ForeignFolderError as error:
        raise ConfigError(str(error)) from error
    with (path / MARKER).open("rb") as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(occupied) from error
        temporary = path / "tmp"
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary)
        temporary.mkdir(mode=PRIVATE)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
