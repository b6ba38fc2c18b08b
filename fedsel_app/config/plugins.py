"""Plugins: a user's own code, named in a setting as ``package.module:function``.

A preset or a run folder may come from a stranger, so a command imports only code that its own arguments name
(`named_by`). Other processes, and Python programs, import what their settings name.
"""

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fedsel_app.config.settings import IN_LOG, ConfigError, did_you_mean

PACKAGES = ("fedsel_app", "strategies", "clients", "simulation")
"""Packages of fedsel."""
MOST_NAMED = 25
"""A message lists at most this number of known names."""
CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""Pattern of a user's code, package.module:name, which may be a part of a setting's value."""
CODE_FOLDER = "FEDSEL_CODE_FOLDER"
"""Environment variable of a deployment's processes: the working directory of the command that started them."""
_loaded: dict[str, int] = {}
"""Module that a setting named -> time of the last change of its file when it was imported, in nanoseconds."""
_edited: set[str] = set()
"""Those of them whose file has changed since then."""
_command: Sequence[str] | None = None
"""Arguments of the command of this process; None: the process runs no command and may import any code."""


@contextmanager
def named_by(arguments: Sequence[str]) -> Iterator[None]:
    """Run the block as the command with these arguments. They must name all code of users that the block imports."""
    global _command
    before, _command = _command, arguments
    try:
        yield
    finally:
        _command = before


def load_object(path: str, setting: str) -> Callable[..., Any]:
    """Import the function or class `path` ("package.module:name").

    Python's path is searched first, then the working directory (see `search_working_directory`).

    Raises ConfigError with the name of `setting`, if the module cannot be imported or has no such callable, or the
    command does not allow it.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"The '{setting}' parameter must have the form package.module:name. Got {path!r}.")
    if module_name.endswith(".py"):
        named = f"{module_name.removesuffix('.py').replace('/', '.')}:{name}"
        raise ConfigError(f"The '{setting}' parameter names a module, not its file: write {named}. Got {path!r}.")
    if _command is not None and not any(path in argument for argument in _command):
        raise ConfigError(
            f"The '{setting}' parameter of a preset or a run folder names the code {path!r}, which was not imported. "
            f"If you trust it, add --allow-code {path} to the command."
        )
    search_working_directory()
    try:
        module = _imported(module_name)
    except Exception as error:
        reason = f"{error}" if isinstance(error, ImportError) else f"{described(error)}{place(error, module_name)}"
        raise ConfigError(
            f"The '{setting}' parameter names the module '{module_name}', which cannot be imported: {reason}."
        ) from error
    loaded = getattr(module, name, None)
    if not callable(loaded):
        raise ConfigError(
            f"The '{setting}' parameter names '{name}', but the module '{module_name}' has no such function or class."
            f"{did_you_mean(name, [each for each in vars(module) if not each.startswith('_')])}"
        )
    return loaded  # type: ignore[no-any-return]


def search_working_directory() -> None:
    """Let Python search the working directory last, and in a deployment that of the command that started it."""
    folders = (os.getcwd(), os.environ.get(CODE_FOLDER, ""))
    sys.path += [folder for folder in folders if folder and folder not in sys.path]


def note_changed() -> None:
    """Note which modules that a setting named have changed: they are loaded again when a setting names them next.

    So code does not change during a run. What these modules import is not loaded again, as usual in Python.
    """
    _edited.update(name for name, changed in _loaded.items() if _changed(sys.modules.get(name)) != changed)


def _imported(name: str) -> ModuleType:
    """Import a module, or load it again if it has changed."""
    module = importlib.import_module(name)
    if name in _edited:
        module = importlib.reload(module)
        _edited.discard(name)
        _loaded[name] = _changed(module)
    _loaded.setdefault(name, _changed(module))
    return module


def _changed(module: ModuleType | None) -> int:
    """Time of the last change of a module's file in nanoseconds; 0 if it has none."""
    file = Path(getattr(module, "__file__", None) or "")
    return file.stat().st_mtime_ns if file.is_file() else 0


def call(path: str, setting: str, *arguments: Any, **named: Any) -> Any:
    """Call the function `path` ("package.module:name") with these arguments.

    Raises ConfigError with the name of the function, if it cannot be imported or raises. Its own ConfigErrors are
    passed on.
    """
    function = load_object(path, setting)
    with user_code(path.partition(":")[0], f"The function '{path}' ('{setting}')"):
        return function(*arguments, **named)


@contextmanager
def user_code(module: str, title: str) -> Iterator[None]:
    """Convert an exception of a user's code into a ConfigError: `title`, the error, and its place in the file of
    `module`.

    A ConfigError and every error of fedsel's own code are passed on.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if module.partition(".")[0] in PACKAGES:
            raise
        text = f": {text}" if (text := " ".join(str(error).split())) else ""
        said, where = f"{title} raised {type(error).__name__}", f"{place(error, module)}."
        raise ConfigError(f"{said}{text}{where}", f"{said}: {IN_LOG}{where}" if text else "") from error


def place(error: Exception, module: str) -> str:
    """Place in the file of `module` where an error was raised, in brackets after a space; empty if unknown."""
    file = getattr(sys.modules.get(module), "__file__", None) or f"{module.rpartition('.')[2]}.py"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(file)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def described(error: Exception) -> str:
    """Type and text of an error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


def unknown_name(setting: str, name: str, names: Iterable[str], otherwise: str = "package.module:name") -> ConfigError:
    """ConfigError for a `name` that is neither known nor has the form of a user's own code."""
    names = list(names)
    hint = did_you_mean(name, names, cutoff=0.5)
    if not hint and setting == "strategy":
        hint = " Name your own method like mine:Method, which is the class Method of mine.py."
    if len(names) > MOST_NAMED:
        return ConfigError(f"There is no {setting} {name!r}.{hint} `fedsel {setting}s` lists all of them.")
    return ConfigError(
        f"The '{setting}' parameter must be one of {', '.join(names)}, or {otherwise}. Got {name!r}.{hint}"
    )
