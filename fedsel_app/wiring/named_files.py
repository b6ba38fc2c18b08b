"""Files and modules that the settings of a run name besides its data, and its folder. Nothing here loads PyTorch."""

import os
from collections.abc import Mapping
from datetime import datetime
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from fedsel_app.config import ConfigError, RunConfig, Value
from fedsel_app.config.data import HUB
from fedsel_app.config.plugins import CODE, CODE_FOLDER, search_working_directory
from fedsel_app.records.run_folder import read_config
from fedsel_app.wiring.client_settings import ALLOWED, named_code
from fedsel_app.wiring.configuration import AppConfig

FILES = ("initial-model", "surrogate-path", "availability-trace")
"""Settings that name a file besides the data."""


def run_folder(config: AppConfig) -> Path:
    """Absolute path of the run folder: `out`, or runs/STRATEGY-DATA-sSEED-TIME in the working directory."""
    if config.records.out:
        return Path(config.records.out).expanduser().absolute()
    name = f"{config.run.strategy}-{config.data.data}-s{config.run.seed}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    return Path("runs").absolute() / name.replace("/", "-").replace(":", "-")


def digests(settings: Mapping[str, Value]) -> dict[str, str]:
    """The sha256, in hexadecimal, of each file that a run's `settings` name, by the key of the setting. What they leave
    out has its default.

    Raises ConfigError if one cannot be read, or if a run folder of 'initial-model' has no run of the same model.
    """
    paths = {key: Path(str(settings[key])).expanduser() for key in FILES if settings.get(key)}
    if "initial-model" in paths:
        model = str(settings.get("model", RunConfig.model))
        paths["initial-model"] = initial_file(str(settings["initial-model"]), model)
    return {key: _digest(path, key) for key, path in paths.items()}


def refuse_missing(settings: Mapping[str, Value]) -> None:
    """Raise ConfigError if this machine lacks a file or a module that `settings` name or allow. Nothing is imported."""
    digests(settings)
    search_working_directory()
    for key, value in [*named_code(settings), (ALLOWED, str(settings.get(ALLOWED, "")))]:
        for path in CODE.findall(value):
            package = path.partition(":")[0].partition(".")[0]
            if not path.startswith(HUB) and find_spec(package) is None:
                raise ConfigError(
                    f"The '{key}' parameter names {path!r}, but this machine has no module '{package}': put it into "
                    f"{os.environ.get(CODE_FOLDER, os.getcwd())}, into an installed package, or on PYTHONPATH."
                )


def initial_file(initial_model: str, model: str) -> Path:
    """File of the setting 'initial-model' for this `model`; of a run folder its last model.

    Raises ConfigError if the folder has no run, or a run of another model.
    """
    path = Path(initial_model).expanduser()
    if not path.is_dir():
        return path
    trained = read_config(path, ["model"])["model"]
    if trained != model:
        raise ConfigError(
            f"Set 'model' to {trained}, which the run in {path} has trained, or leave 'initial-model' out."
        )
    return path / "model.npz"


def _digest(path: Path, key: str) -> str:
    """The sha256 of a file, in hexadecimal. Raises ConfigError if it cannot be read."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe may never end
            raise ConfigError(f"The '{key}' {path} cannot be read: it is not a file.")
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"The '{key}' {path} cannot be read: {error.strerror}.") from error
