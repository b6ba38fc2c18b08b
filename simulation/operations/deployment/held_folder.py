"""Folder of a deployment on this machine: locked while its processes run, with a folder for their temporary files."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsel_app.records.fedsel_folder import MARKER, PRIVATE, make_fedsel_folder


@contextmanager
def held_folder(path: Path) -> Iterator[Path]:
    """Make fedsel's folder `path`, and lock it for the block, with an empty private folder ``tmp`` in it: the value.

    ``tmp`` is removed at the end; that of a killed process is removed first.

    Raises BlockingIOError if another process has locked the folder, or ForeignFolderError if it is not fedsel's.
    """
    make_fedsel_folder(path)
    with (path / MARKER).open("rb") as marker:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        temporary = path / "tmp"
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary)
        temporary.mkdir(mode=PRIVATE)
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
