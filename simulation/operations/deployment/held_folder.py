"""Folder of a deployment on this machine: locked while its processes run, with a folder for their temporary files."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsel_app.records.fedsel_folder import MARKER, PRIVATE


@contextmanager
def working_in(path: Path) -> Iterator[None]:
    """Lock fedsel's folder `path` for the block.

    Raises BlockingIOError if another process has locked it.
    """
    with (path / MARKER).open("rb") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Make the private folder ``tmp`` in fedsel's folder `path`, and remove it at the end.

    If a killed process left this folder, it is removed first.
    """
    folder = path / "tmp"
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    folder.mkdir(mode=PRIVATE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
