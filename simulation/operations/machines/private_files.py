"""Private files: folders that this user has made, or holds alone, and keys that nobody else can read."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import MARKER, PRIVATE, ForeignFolderError, make_fedsel_folder

OWNER_ALONE, EVERYBODY, OTHERS = 0o600, 0o644, 0o077
"""Mode of a private file, mode of a public file, and the bits of a mode that let other users in."""
ROOT = 0


class NewFile(NamedTuple):
    """File that is to be made: its content and its mode."""

    content: bytes
    mode: int = EVERYBODY


def make_folder(path: Path, files: Mapping[str, NewFile]) -> None:
    """Make a private folder with `files`, whose names are relative to it. It gets its name when it is complete.

    Until then it has a random name, and only its owner can open it. Raises ConfigError if `path` exists, or the folder
    cannot be made.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already. Choose another folder.")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
        try:
            for name, file in files.items():
                for parent in reversed(Path(name).parents[:-1]):
                    (unnamed / parent).mkdir(PRIVATE, exist_ok=True)
                write_new(unnamed / name, file)
            unnamed.rename(path)
        except BaseException:
            shutil.rmtree(unnamed, ignore_errors=True)
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an error of the system in the block to a ConfigError that names `path`."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.") from error


def write_new(path: Path, file: NewFile) -> None:
    """Make a file. Raises FileExistsError if the name exists, also as a symlink."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode), "wb") as written:
        written.write(file.content)


def replace_file(path: Path, file: NewFile) -> None:
    """Replace a file, at once or not at all. Raises OSError on failure."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    write_new(part, file)
    part.replace(path)


def read_file(path: Path, *, secret: bool = False) -> bytes:
    """Content of a file in a machine's folder.

    Raises ConfigError if it is missing or cannot be read, if another user may change it, or if it is `secret` and not
    only its owner may open it.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "Not a regular file")
            if secret and status.st_mode & OTHERS:
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigError(f"Run `chmod 600 {path}`: the file is secret, and others may open it ({mode:o}).")
            refuse_changeable(path, status)
            return file.read()
    except OSError as error:
        raise ConfigError(f"Copy {path} again from where it was provisioned: {error.strerror or error}.") from error


def refuse_changeable(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError if another user may change a file or a folder: what it says could then be anybody's."""
    if status.st_uid not in (ROOT, os.geteuid()):
        raise ConfigError(f"Run `chown {os.geteuid()} {path}`: it belongs to another user, who may change it.")
    # A group with the owner's number is the owner's own: many systems give each user one, and let it write.
    shared = stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != status.st_uid else 0)
    if status.st_mode & shared:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(f"Run `chmod go-w {path}`: other users of this machine may change it ({mode:o}).")


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
