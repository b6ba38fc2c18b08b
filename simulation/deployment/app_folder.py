"""Folder from which Flower bundles fedsel as an app: the checkout, or a copy of the installed packages."""

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import PACKAGES
from fedsel_app.imports import ROOT
from fedsel_app.records.fedsel_folder import MARKER, make_fedsel_folder

CARRIED = Path(__file__).with_name("checkout_files")
"""Folder of the bundle's files that belong to no package. Only a wheel has it: ``setup.py`` copies them there."""


def app_folder() -> Path:
    """Folder from which Flower bundles the app: the checkout or, where fedsel runs from a wheel, a copy in the cache.

    The bundle of the copy equals the bundle of the checkout bit for bit. The copy is in ``$XDG_CACHE_HOME/fedsel``, or
    in ``~/.cache/fedsel``, under the hash of its files. A copy with other files than the installed ones is made again.

    Raises
    ------
    ConfigError
        If the copy cannot be written.
    """
    if not CARRIED.is_dir():
        return ROOT
    files = {name: data for top in PACKAGES for name, data in _files(ROOT / top, ROOT).items()} | _files(CARRIED)
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
    try:
        cache = _cache_folder()
        make_fedsel_folder(cache)
        folder = cache / digest / "fedsel"  # Flower wants the app's name as the folder's
        with (cache / MARKER).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _files(folder) != files:
                shutil.rmtree(folder, ignore_errors=True)
                for name, data in files.items():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name).write_bytes(data)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"The app for Flower cannot be put together from the installed packages: {error} "
            "Set XDG_CACHE_HOME to a folder in which you may write."
        ) from error
    return folder


def _cache_folder() -> Path:
    """fedsel's folder in the user's cache (XDG Base Directory Specification). Raises RuntimeError without a home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "fedsel"


def _files(folder: Path, root: Path | None = None) -> dict[Path, bytes]:
    """Files below `folder`, their names relative to `root` (by default `folder`); without bytecode and `CARRIED`."""
    found = {path.relative_to(root or folder): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes() for name, path in found.items() if not {"__pycache__", CARRIED.name} & {*name.parts}
    }
