"""Faults in the file system, or an exception anywhere, at the n-th place of a program: see `tests.faults`.

Python imports this module when it starts with this folder on its path, so that all processes of a command have the
hooks, and only the process that comes to the place has the fault. FAULT names a JSON file with the fields of `install`.
"""

import builtins
import errno
import io
import json
import os
import signal
import sys

PACKAGES = tuple(f"/{name}/" for name in ("fedsel_app", "strategies", "clients", "simulation"))
"""Folders of the modules in whose functions exceptions are raised."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Injected(BaseException):
    """An exception that no code expects."""


class Place:
    """Counter of the places in all processes of a program: a file with a byte for each."""

    def __init__(self, counter, number):
        self._counter, self._number = counter, number

    def reached(self):
        """Count one more place; True at the chosen one."""
        file = os.open(self._counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, b".")
        count = os.fstat(file).st_size
        os.close(file)
        return count == self._number


def install(folder, counter, number, kind):
    """Install the hooks.

    Parameters
    ----------
    folder : only files below it count
    counter : file that counts the places
    number : the place of the fault, from 1; 0: none
    kind : EIO, ENOSPC, torn, kill-before, kill-after or exception
    """
    place, root = Place(counter, number), os.path.realpath(folder) + os.sep
    if kind == "exception":
        _raise_in_functions(place)
        return

    def concerns(path, folder_fd=None):
        try:
            if isinstance(path, int):
                path = os.readlink(f"/proc/self/fd/{path}")
            elif folder_fd is not None:
                path = os.path.join(os.readlink(f"/proc/self/fd/{folder_fd}"), path)
            path = os.path.abspath(os.fspath(path))
        except (OSError, TypeError):
            return False
        return path.startswith(root)

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(path):
        code = errno.EIO if kind == "EIO" else errno.ENOSPC
        raise OSError(code, os.strerror(code), path if isinstance(path, str) else None)

    def at_fault(call, path, torn=None):
        """Carry out a call with the fault of this `kind`."""
        if kind == "kill-before":
            die()
        if kind == "torn" and torn is not None:
            torn()
        if kind == "kill-after":
            call()
            die()
        fail(path)

    def hooked(function, position=0):
        def hook(*arguments, **keywords):
            path = arguments[position] if len(arguments) > position else None
            known = keywords.get("dir_fd", keywords.get("src_dir_fd"))
            if not concerns(path, known) or not place.reached():
                return function(*arguments, **keywords)
            return at_fault(lambda: function(*arguments, **keywords), path)

        return hook

    class File:
        """A file that is open for writing: every write is a place, and its close, at which NFS tells of lost writes."""

        def __init__(self, file):
            self.__dict__["_file"] = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def __setattr__(self, name, value):
            setattr(self._file, name, value)

        def __enter__(self):
            self._file.__enter__()
            return self

        def __exit__(self, *error):
            self.close()

        def __iter__(self):
            return iter(self._file)

        def close(self):
            if self._file.closed or not place.reached():
                return self._file.close()
            return at_fault(self._file.close, self._file.name, self._file.close)

        def write(self, content):
            if not place.reached():
                return self._file.write(content)

            def tear():
                self._file.write(content[: len(content) // 2])
                self._file.flush()

            return at_fault(lambda: self._file.write(content), self._file.name, tear)

    whole_open, os_open = io.open, os.open

    def opened(file, mode="r", *arguments, **keywords):
        writes = set(mode) & set("wxa+") and concerns(file)
        if writes and place.reached():
            return at_fault(lambda: whole_open(file, mode, *arguments, **keywords), file)
        made = whole_open(file, mode, *arguments, **keywords)
        return File(made) if writes else made

    def os_opened(path, flags, *arguments, **keywords):
        if flags & WRITING and concerns(path, keywords.get("dir_fd")) and place.reached():
            return at_fault(lambda: os_open(path, flags, *arguments, **keywords), path)
        return os_open(path, flags, *arguments, **keywords)

    builtins.open = io.open = opened
    os.open = os_opened
    for name in ("fsync", "unlink", "remove", "mkdir", "rmdir", "ftruncate"):
        setattr(os, name, hooked(getattr(os, name)))
    for name in ("replace", "rename"):
        setattr(os, name, hooked(getattr(os, name), 1))


def _raise_in_functions(place):
    def at_call(frame, event, argument):
        if event == "call" and any(name in frame.f_code.co_filename for name in PACKAGES) and place.reached():
            sys.setprofile(None)
            raise Injected(f"in {frame.f_code.co_qualname} of {frame.f_code.co_filename}")

    sys.setprofile(at_call)


if "FAULT" in os.environ:
    with open(os.environ["FAULT"], encoding="utf-8") as given:
        install(**json.load(given))
