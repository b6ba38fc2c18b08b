"""Presets: named settings to start from, in a folder a paper; general ones lie beside the folders."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedsel_app.config import ConfigError, Settings, Value, setting
from fedsel_app.config.plugins import unknown_name

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class PresetConfig(Settings):
    """Preset: named settings to start from."""

    preset: str = setting("", "named settings to start from: a name of `fedsel presets`, or a .toml file")


@cache
def preset_files() -> dict[str, Path]:
    """Preset name -> file, of the presets that come with fedsel, by name."""
    return {path.stem: path for path in sorted(FOLDER.rglob("*.toml"), key=lambda path: path.stem)}


def summary(name: str) -> str:
    """First line of a preset's file: the paper, the data set and the model."""
    return preset_files()[name].read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def read_preset(name: str, above: tuple[Path, ...] = ()) -> dict[str, Value]:
    """Settings of a preset: one that comes with fedsel, or a TOML file of setting keys.

    A preset may start from another: ``base`` names it, and for a file it is sought beside the preset that names it.
    `above` are the presets that led here.

    Raises
    ------
    ConfigError
        If there is none, it cannot be read, it is not TOML, or it starts from itself.
    """
    path = Path(name) if name.endswith(".toml") else preset_files().get(name)
    if path is None:
        raise unknown_name("preset", name, preset_files(), "a .toml file")
    if not path.is_file():
        raise ConfigError(f"There is no preset file {path}.")
    if path.resolve() in above:
        raise ConfigError(f"The preset {path} starts from itself through 'base'; let one of that circle have none.")
    try:
        settings = flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"The preset {path} cannot be read: {error}.") from error
    base = settings.pop("base", "")
    if not isinstance(base, str):
        raise ConfigError(f"The 'base' of the preset {path} must be the name of another preset. Got {base!r}.")
    if base.endswith(".toml"):
        base = str(path.parent / base)
    return (read_preset(base, (*above, path.resolve())) if base else {}) | settings


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, Value]:
    """Nested TOML tables -> keys joined by dots, as Flower does it.

    Raises
    ------
    ConfigError
        For a value that is a list, a date or the like.
    """
    flat: dict[str, Value] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            flat[prefix + key] = value
        else:
            raise ConfigError(f"The '{prefix}{key}' parameter must be true or false, a number or text. Got {value!r}.")
    return flat
