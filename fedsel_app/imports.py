"""Imports: fedsel's own packages take precedence over packages of the same name, and Flower and torch get their default
environment variables."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("clients", "simulation", "strategies")
"""fedsel's top-level packages beside `fedsel_app`. Other projects may use the same names."""
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # OpenMP's threads spin for some 20 microseconds, not for milliseconds in which other processes may need the core.
    "GOMP_SPINCOUNT": "1000",
}
"""Default environment variables of a process that runs fedsel."""
LEGACY = (
    "fedsel takes Flower apps of the Message API, and this is one of the legacy API (server_fn, client_fn): "
    "docs/flower-app.md says how to move it, under 'From the legacy API'."
)
"""Sentence on an app of Flower's legacy API."""


def set_defaults() -> None:
    """Set the variables of `ENVIRONMENT` that are not set yet. Flower and torch read them when they are imported."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class FedselPackages:
    """Finder of fedsel's own packages: next to this package, even if another package of that name is first on the path.

    A Ray worker has the working directory first on its path, and a script has its own folder first.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find one of `PACKAGES` next to this package, and nothing else."""
        return PathFinder.find_spec(name, [str(ROOT)]) if name in PACKAGES else None


class MissingModules:
    """Last finder: a module that is missing in fedsel's package may belong to a user's package of the same name."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find the module in the user's folder of the same name.

        Raises ImportError with both paths if a user's package does not have it, as a name that the package defines.
        """
        top, *parents = name.split(".")
        if top not in PACKAGES or not parents:
            return None
        entries = [Path(entry) for entry in sys.path if not Path(entry, "fedsel_app").is_dir()]
        spec = PathFinder.find_spec(name, [str(entry.joinpath(top, *parents[:-1])) for entry in entries])
        if spec is None and (other := namesake(top)):
            raise ImportError(_conflict(top, other))
        return spec


def prefer_own_packages() -> None:
    """Make `import` find fedsel's own packages first.

    If a user's package of that name is imported already, fedsel's takes its place and its modules stay. Raises
    ImportError if a module of it has the name of one of fedsel's.
    """
    if FedselPackages not in sys.meta_path:
        sys.meta_path.insert(0, FedselPackages)
        sys.meta_path.append(MissingModules)
    for name in PACKAGES:
        other = _place(sys.modules[name].__spec__) if name in sys.modules else ROOT / name
        if other is None or _is_foreign(other):
            if other:
                _refuse_common_modules(name, other)
            del sys.modules[name]
            package = import_module(name)
            for module in [module for module in sys.modules if module.rpartition(".")[0] == name]:
                setattr(package, module.rpartition(".")[2], sys.modules[module])


def refuse_namesakes() -> None:
    """Raise ImportError if a user's module on the path has the name of one of fedsel's packages or of their modules.

    Other modules of a user's package with the name of one of fedsel's are found (`MissingModules`).
    """
    for name in PACKAGES:
        if other := namesake(name):
            _refuse_common_modules(name, other)


def _refuse_common_modules(name: str, other: Path) -> None:
    if other.is_file():
        raise ImportError(_conflict(name, other))
    for file in sorted(other.rglob("*.py")):
        module = str(file.relative_to(other))
        if file.name != "__init__.py" and (ROOT / name / module).is_file():
            raise ImportError(_conflict(name, other, module))


def namesake(name: str) -> Path | None:
    """The module or package `name` on the path that is not fedsel's. A folder without __init__.py does not count."""
    entries = [entry for entry in sys.path if Path(entry).resolve() != ROOT]
    other = _place(PathFinder.find_spec(name, entries))
    return other if other is not None and _is_foreign(other) else None


def _place(spec: ModuleSpec | None) -> Path | None:
    """File of a module, or folder of a package; None for a namespace."""
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).resolve()
    return file.parent if spec.submodule_search_locations else file


def _is_foreign(path: Path) -> bool:
    """True if the place is neither next to this package nor in another copy of fedsel."""
    return path.parent != ROOT and not (path.parent / "fedsel_app").is_dir()


def _conflict(name: str, other: Path, module: str = "") -> str:
    both = f"both have {module}" if module else "share this name"
    return (
        f"Rename {other}: it and fedsel's own package {ROOT / name} {both}, and a process can import only one of them."
    )


@dataclass(frozen=True)
class AfterImports:
    """Function for another process. Unpickling it imports this module first, so the process finds fedsel's own
    packages.
    """

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)
