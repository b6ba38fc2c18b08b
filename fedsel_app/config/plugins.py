"""Plugins: a user's own code, named in a setting as ``package.module:function``.

A preset or a run folder may come from a stranger, so a command imports only code that its own arguments name
(`named_by`). Other processes, and Python programs, import what their settings name.
"""

import ast
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from fedsel_app.config.server import AGGREGATIONS, SERVER_OPTIMIZERS
from fedsel_app.config.settings import IN_LOG, ConfigError
from fedsel_app.config.training import SOLVERS
from fedsel_app.config.words import did_you_mean

Stamp = tuple[int, int]
"""Size in bytes, and time of the last change in nanoseconds, of a file."""
PACKAGES = ("fedsel_app", "strategies", "clients", "simulation")
"""Packages of fedsel."""
INSTALLED = {"site-packages", "dist-packages", Path(os.__file__).parent.name}
"""Folders of installed packages and of Python itself."""
MOST_NAMED = 25
"""A message lists at most this number of known names."""
NO_SELECTION = {
    "fedavg": "--preset fedavg",
    "fedavgm": "--strategy random --set server-optimizer=momentum",
    "fedmedian": "--strategy random --set aggregation=median",
    "fedtrimmedavg": "--strategy random --set aggregation=trimmed-mean",
    **{
        name.replace("-", ""): f"--strategy random --set {setting}={name}"
        for setting, choices in (
            ("aggregation", AGGREGATIONS),
            ("server-optimizer", SERVER_OPTIMIZERS),
            ("solver", SOLVERS),
        )
        for name in choices
    },
}
"""Strategies of Flower that select like `random`, and choices of settings, without dashes -> what to type for them."""
CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""Pattern of a user's code, package.module:name, which may be a part of a setting's value."""
_parts: dict[str, list[str]] = {}
"""Module that a setting named -> the modules of users that it imports, and itself, each after its own imports."""
_stamps: dict[str, Stamp] = {}
"""Stamp of the file from which each of them was loaded."""
_stale: set[str] = set()
"""Those of them that are to be loaded again."""
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

    Python's path is searched first, then the working directory.

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
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
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


def note_changed() -> None:
    """Note which modules of users have changed since a setting named them, with those that they import.

    They are loaded again when a setting names them the next time: code does not change during a run.
    """
    for parts in list(_parts.values()):  # another thread may add some
        if any(each in sys.modules and _stamps[each] != _stamp(sys.modules[each]) for each in parts):
            _stale.update(parts)


def _imported(name: str) -> ModuleType:
    """Import a module, or load it again if it has changed."""
    before = set(sys.modules)
    module = importlib.import_module(name)
    if name not in _parts:
        parts = _with_imports(name)
        if any(each in before and _edited(sys.modules[each]) for each in parts):
            _stale.update(parts)
        _stamps.update({each: _stamp(sys.modules[each]) for each in parts if each not in _stamps})
        _parts[name] = parts
    for each in _parts[name]:
        if each in _stale:
            again = sys.modules.get(each) or importlib.import_module(each)
            with suppress(OSError):  # Python would take a compiled file of the same second and size for the new one.
                Path(importlib.util.cache_from_source(str(again.__file__))).unlink(missing_ok=True)
            importlib.reload(again)
            _stamps[each] = _stamp(again)
            _stale.discard(each)
    return module


def _with_imports(name: str, before: Sequence[str] = ()) -> list[str]:
    """The module and the modules that it imports, each after its own imports; without those `before` it.

    Those of installed packages, and of fedsel, do not count: they are not edited while a process runs.
    """
    file = Path(getattr(sys.modules.get(name), "__file__", None) or "")
    imported = name in (*before, "__main__") or name.partition(".")[0] in PACKAGES
    if imported or file.suffix != ".py" or not file.is_file() or INSTALLED & set(file.parts):
        return []
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    shadowed = []
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            shadowed += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            shadowed += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    listed: list[str] = []
    for each in shadowed:
        listed += _with_imports(each, [*before, name, *listed])
    return [*listed, name]


def _edited(module: ModuleType) -> bool:
    """True if a module's file was changed after Python compiled it."""
    compiled = Path(importlib.util.cache_from_source(str(module.__file__)))
    return compiled.is_file() and compiled.stat().st_mtime_ns < Path(str(module.__file__)).stat().st_mtime_ns


def _stamp(module: ModuleType) -> Stamp:
    """Stamp of a module's file; (0, 0) if it has none any more."""
    file = Path(module.__file__ or "")
    return (status.st_size, status.st_mtime_ns) if file.is_file() and (status := file.stat()) else (0, 0)


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


def instead_of_strategy(name: str) -> str:
    """Hint for a name that is no selection method but an algorithm with random selection, such as fedavg.

    It begins with a space, and says what to type in place of the name. It is empty for names not in `NO_SELECTION`.
    """
    typed = NO_SELECTION.get(name.lower().replace("-", "").replace("_", ""))
    return f" It selects at random: use {typed}." if typed else ""


def unknown_name(setting: str, name: str, names: Iterable[str], otherwise: str = "package.module:name") -> ConfigError:
    """ConfigError for a `name` that is neither known nor has the form of a user's own code."""
    names = list(names)
    instead = ""
    if setting == "strategy":
        several = f" To compare several, use fedsel compare --strategies {name} --out DIR."
        instead = several if "," in name else instead_of_strategy(name)
    module, _, function = name.rpartition(".")
    meant = f" Did you mean '{module}:{function}'?" if CODE.fullmatch(f"{module}:{function}") else ""
    hint = instead or did_you_mean(name, names, cutoff=0.5) or meant
    if not hint and setting == "strategy":
        hint = " Name your own method like mine:Method, which is the class Method of mine.py."
    if len(names) > MOST_NAMED:
        return ConfigError(f"There is no {setting} {name!r}.{hint} `fedsel {setting}s` lists all of them.")
    return ConfigError(
        f"The '{setting}' parameter must be one of {', '.join(names)}, or {otherwise}. Got {name!r}.{hint}"
    )
