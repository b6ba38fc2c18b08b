"""Private files: folders that this user alone has made, and keys that nobody else can read."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import PRIVATE

OWNER_ALONE, EVERYBODY, OTHERS = 0o600, 0o644, 0o077
"""Mode of a private file, mode of a public file, and the bits of a mode that let other users in."""
ROOT = 0


class NewFile(NamedTuple):
    """File that is to be made: its content and its mode."""

    content: bytes
    mode: int = EVERYBODY


def make_folder(path: Path, files: Mapping[str, NewFile]) -> None:
    """Make a private folder with `files`, whose names are relative to it. It gets its name when it is complete.

    Nothing that other users do in the folder above can lead a file to another place: the files are made below the
    opened folder and not below its name.

    Raises ConfigError if `path` exists, the folder cannot be made, or another user replaces it.
    """
    if os.path.lexists(path):
        raise ConfigError(f"{path} exists already. Choose another folder.")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unnamed = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
        try:
            with own_folder(unnamed) as folder:
                for name, file in files.items():
                    for parent in reversed(Path(name).parents[:-1]):
                        with suppress(FileExistsError):
                            os.mkdir(parent, PRIVATE, dir_fd=folder)
                    write_new(folder, name, file)
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


@contextmanager
def own_folder(path: Path) -> Iterator[int]:
    """Descriptor of the folder `path` for the block.

    Raises ConfigError if it is another user's, and OSError if it cannot be opened.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise ConfigError(f"Choose a folder of your own: {path} belongs to another user, who may replace its keys.")
        yield folder
    finally:
        os.close(folder)


def write_new(folder: int, name: str, file: NewFile) -> None:
    """Make a file in an opened folder. Raises FileExistsError if the name exists, also as a symlink."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(name, flags, file.mode, dir_fd=folder), "wb") as written:
        written.write(file.content)


def replace_file(folder: int, name: str, file: NewFile) -> None:
    """Replace a file in an opened folder, at once or not at all. Raises OSError on failure."""
    part = f".{name}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    write_new(folder, part, file)
    os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)


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
