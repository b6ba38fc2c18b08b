"""Copy of fedsel's packages without the rest of a checkout: the app that Flower bundles."""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from fedsel_app.config import ConfigError
from fedsel_app.imports import ROOT
from fedsel_app.records.fedsel_folder import MARKER, make_fedsel_folder

CARRIED = Path(__file__).with_name("checkout_files")
"""Folder in a wheel, made by ``setup.py``, with the files of the checkout that the bundle needs."""
BUNDLED = ("fedsel_app", "strategies", "clients")
"""Packages of the app, which Flower sends to every server and client: the `fab-include` of pyproject.toml."""
BESIDE = ("pyproject.toml", "README.md", "LICENSE", "fedsel.py")
"""Names of these files, which belong to no package."""


def app_folder() -> Path:
    """Folder from which Flower bundles the app. Raises ConfigError if it cannot be written.

    It is a copy, because Flower reads the names of all files in the folder. A checkout also has a virtual environment
    with tens of thousands of files, and its bundle is the same bit for bit. The copy is in ``$XDG_CACHE_HOME/fedsel``,
    or in ``~/.cache/fedsel``, under the hash of its files. A copy with other files is made again.
    """
    beside = CARRIED if CARRIED.is_dir() else ROOT
    files = {Path(name): (beside / name).read_bytes() for name in BESIDE}
    for package in BUNDLED:
        files |= _files(ROOT / package, ROOT)
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    try:
        named = os.environ.get("XDG_CACHE_HOME", "")  # XDG Base Directory Specification
        cache = (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "fedsel"
        make_fedsel_folder(cache)
        folder = cache / digest / "fedsel"  # Flower wants the app's name as the folder's
        with (cache / MARKER).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _files(folder, folder) != files:
                shutil.rmtree(folder, ignore_errors=True)
                for name, data in files.items():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(data)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"The app for Flower cannot be put together from the packages: {error} "
            "Set XDG_CACHE_HOME to a folder in which you may write."
        ) from error
    return folder


def _files(folder: Path, root: Path) -> dict[Path, bytes]:
    """Files below `folder`, their names relative to `root`, without bytecode and `CARRIED`."""
    paths = {path.relative_to(root): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in paths.items() if not {"__pycache__", CARRIED.name} & {*name.parts}
    }
