"""Presets: named settings to start from. Each paper has a folder of presets; general presets are outside the folders.

`strategies` are the strategies in the paper's table; a comparison uses them unless it names others. A table
``[methods.NAME]`` is itself a preset on top of this one. It has the settings that differ in the runs of the strategy
NAME. A run has the defaults, its preset on top, and the user's settings on top of both (`layered`). What a preset
says of its paper (`OF_PAPER`) is read in a checkout: see `laboratory.protocols`.
"""

import tomllib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Self

from fedsel_app.config import ConfigError, RunConfig, Settings, Value, setting
from fedsel_app.config.data import with_arguments
from fedsel_app.config.plugins import unknown_name
from fedsel_app.config.server import ASYNCHRONOUS
from fedsel_app.config.settings import Entry

FOLDER = Path(__file__).parent
PROTOCOL_FILE = "protocol.toml"
"""Name of the file with a paper's protocols in the paper's folder. The file is not a preset."""
OF_PAPER = ("protocol", "departures")
"""Entries of a preset that are no settings: its table of the protocols, and where it departs from it."""


@dataclass(frozen=True)
class PresetConfig(Settings, scope="task"):
    """Preset: named settings to start from."""

    preset: str = setting("", "named settings to start from: a name of `fedsel presets`, or a .toml file", first=True)


@dataclass(frozen=True)
class Preset:
    """Preset: the content of its file and of the files of its bases.

    Attributes
    ----------
    settings : setting key -> value
    methods : strategy -> preset with what differs in its runs; None: as in the base
    strategies : strategies of a comparison that names no others
    """

    settings: Mapping[str, Value] = field(default_factory=dict)
    methods: Mapping[str, Self] | None = None
    strategies: tuple[str, ...] = ()

    def overlaid(self, upper: Self) -> Self:
        """Preset `upper` on top of this one. Its settings apply to every method.

        If it names other data, the arguments of these data are its own too.
        """
        lower = self.without(with_arguments(upper.settings))
        return replace(
            upper,
            settings={**lower.settings, **upper.settings},
            methods=lower.methods if upper.methods is None else upper.methods,
            strategies=upper.strategies or self.strategies,
        )

    def without(self, keys: Container[str]) -> Self:
        """This preset without the settings `keys`."""
        return replace(
            self,
            settings={key: value for key, value in self.settings.items() if key not in keys},
            methods=self.methods and {name: preset.without(keys) for name, preset in self.methods.items()},
        )

    def of_method(self, name: str) -> Self:
        """Preset of the runs of the strategy `name`: this preset with the preset of `name` in `methods` on top."""
        preset = (self.methods or {}).get(name)
        joined = self.overlaid(preset) if preset else self
        return replace(joined, settings={**joined.settings, "strategy": name}, methods=None)


@cache
def preset_files() -> dict[str, Path]:
    """Preset name -> file, in the order of the names."""
    files = [path for path in FOLDER.rglob("*.toml") if path.name != PROTOCOL_FILE]
    return {path.stem: path for path in sorted(files, key=lambda path: path.stem)}


def summary(name: str) -> str:
    """First line of a preset's file: the paper, the data set and the model."""
    return preset_files()[name].read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def load_preset(name: str, above: tuple[Path, ...] = ()) -> Preset:
    """Preset that comes with fedsel, or a TOML file of setting keys.

    A preset may start from another one, which ``base`` names. If that is a file, its path is relative to the preset's
    folder. `above` are the presets whose bases led to this one.

    Raises ConfigError if the preset does not exist, cannot be read, is not TOML, or starts from itself.
    """
    path = Path(name) if name.endswith(".toml") else preset_files().get(name)
    if path is None:
        raise unknown_name("preset", name, preset_files(), "a .toml file")
    if not path.is_file():
        raise ConfigError(f"There is no preset file {path}.")
    if path.resolve() in above:
        raise ConfigError(f"The preset {path} starts from itself through 'base': remove one 'base' of this circle.")
    preset, base = read_preset(path)
    return load_preset(base, (*above, path.resolve())).overlaid(preset) if base else preset


def read_preset(path: Path) -> tuple[Preset, str]:
    """The preset in a file without its base, and the base's name or path; empty: none."""
    table = read_toml(path)
    base, methods, strategies = table.pop("base", ""), table.pop("methods", None), table.pop("strategies", [])
    if not isinstance(base, str):
        raise ConfigError(f"The 'base' of the preset {path} must be the name of another preset. Got {base!r}.")
    if base.endswith(".toml"):
        base = str(path.parent / base)
    if not isinstance(strategies, list) or not all(isinstance(name, str) for name in strategies):
        raise ConfigError(f"The 'strategies' of the preset {path} must be a list of names. Got {strategies!r}.")
    named = None if methods is None else _methods(methods, path)
    return replace(_preset(table, path), methods=named, strategies=tuple(strategies)), base


def _preset(table: dict[str, object], path: Path) -> Preset:
    if "preset" in table:
        raise ConfigError(
            f"Write base = {table['preset']!r} at the top of the preset {path}: 'preset' is not read there."
        )
    return Preset(flatten({key: value for key, value in table.items() if key not in OF_PAPER}))


def _methods(tables: object, path: Path) -> dict[str, Preset]:
    """Strategy -> preset of its runs, of the tables [methods.NAME]; none of them names another strategy."""
    methods: dict[str, Preset] = {}
    for name, table in tables.items() if isinstance(tables, Mapping) else [("NAME", tables)]:
        if not isinstance(table, dict) or "strategy" in table:
            raise ConfigError(
                f"[methods.{name}] in the preset {path} must be a table of settings for the strategy {name}, "
                "and 'strategy' none of them."
            )
        methods[name] = _preset(table, path)
    return methods


def read_toml(path: Path) -> dict[str, object]:
    """Table of a TOML file. Raises ConfigError if it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"The preset {path} cannot be read: {error}.") from error


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, Value]:
    """Flatten nested TOML tables: join the keys with dots, as Flower does.

    Raises ConfigError for a value that is neither a boolean, a number nor text.
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


def layered(overrides: Mapping[str, Value]) -> dict[str, Value]:
    """Values of the preset in `overrides` with its settings for the strategy, and `overrides` on top of them.

    Below them are the defaults of an asynchronous server. Raises ConfigError as `load_preset` does.
    """
    values = {key: value for key, value in overrides.items() if key != "preset"}
    if name := str(overrides.get("preset", "")):
        preset = load_preset(name)
        strategy = values.get("strategy", preset.settings.get("strategy", RunConfig.strategy))
        values = {**preset.of_method(str(strategy)).without(with_arguments(values)).settings, **values}
    return {**ASYNCHRONOUS, **values} if values.get("waiting") == "asynchronous" else values


def chosen(run_config: Mapping[str, Value], entries: Iterable[Entry]) -> dict[str, Value]:
    """Values in the run configuration of Flower that its user has set.

    Flower passes its table of defaults with the user's values already inserted. So a value that equals its default
    counts as not set, and a preset's value takes precedence.
    """
    defaults = {entry.key: entry.default for entry in entries}
    return {key: value for key, value in run_config.items() if defaults.get(key) != value}
