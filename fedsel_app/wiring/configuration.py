"""Configuration of a run on its server: all settings, checked, and the class of the method."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from fedsel_app.config import (
    GROUPS,
    ConfigError,
    RunConfig,
    Settings,
    SharedSettings,
    Value,
    read_groups,
    refuse_unknown,
)
from fedsel_app.config.settings import Entry
from fedsel_app.presets.preset import Preset, PresetConfig, chosen, layered, load_preset
from fedsel_app.wiring.validation import validate_combination
from strategies import STRATEGIES, find_strategy
from strategies.base import SelectionStrategy


@dataclass(frozen=True, kw_only=True)
class AppConfig(SharedSettings):
    """Configuration of a run: every setting, checked."""

    method: Settings
    strategy: type[SelectionStrategy]

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> Self:
        """Build from flat `values`; absent keys keep their defaults.

        Raises ConfigError for an unknown key or method, a value out of range, or incompatible settings.
        """
        strategy = find_strategy(str(values.get("strategy", RunConfig.strategy)))
        refuse_unknown(values, [*known_defaults(), *strategy.Config.keys(f"{strategy.name}.")])
        groups = read_groups(values)
        method = strategy.Config.from_values(values, f"{strategy.name}.")
        config = cls(**groups, method=method, strategy=strategy)
        validate_combination(config, strategy, method)
        return config

    def values(self) -> dict[str, Value]:
        """Setting key -> value, the method's own settings included."""
        shared = {key: value for group in self.groups().values() for key, value in group.values().items()}
        return shared | self.method.values(f"{self.strategy.name}.")


class SettingGroup(NamedTuple):
    """Group of settings: its class, the prefix of its keys, and its purpose in one sentence."""

    kind: type[Settings]
    prefix: str
    purpose: str

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every setting of the group."""
        return self.kind.entries(self.prefix)


def setting_groups() -> list[SettingGroup]:
    """All groups of settings: the preset, the groups that methods share, and the group of each method."""
    kinds: list[type[Settings]] = [PresetConfig, *GROUPS.values()]
    shared = [SettingGroup(kind, "", str(kind.__doc__).splitlines()[0]) for kind in kinds]
    methods = [
        SettingGroup(method.Config, f"{method.name}.", f"Method {method.name}: {method.paper}.")
        for method in STRATEGIES.values()
    ]
    return shared + [group for group in methods if group.kind.keys()]


def setting_entries() -> list[Entry]:
    """All settings of the app and of its methods."""
    return [entry for group in setting_groups() for entry in group.entries]


def known_defaults() -> dict[str, Value]:
    """Setting key -> default, of the app and of all its methods."""
    return {entry.key: entry.default for entry in setting_entries()}


def resolve(overrides: Mapping[str, Value]) -> AppConfig:
    """Configuration from the defaults, the preset in `overrides` with its settings for the strategy, and `overrides`.

    Raises ConfigError as in `AppConfig.from_values` and `load_preset`, and if a preset has an invalid setting for a
    method.
    """
    if name := str(overrides.get("preset", "")):
        validate_methods(load_preset(name), name)
    return AppConfig.from_values(layered(overrides))


def validate_methods(preset: Preset, name: str) -> None:
    """Raise ConfigError if the preset `name` has an unknown setting or a value out of range for a method."""
    for strategy, upper in (preset.methods or {}).items():
        try:
            method = find_strategy(strategy)
            refuse_unknown(upper.settings, [*known_defaults(), *method.Config.keys(f"{method.name}.")])
            read_groups(upper.settings)
            method.Config.from_values(upper.settings, f"{method.name}.")
        except ConfigError as error:
            raise ConfigError(f"[methods.{strategy}] in the preset {name}: {error}") from error


def resolve_run_config(run_config: Mapping[str, Value]) -> AppConfig:
    """Configuration of a run that Flower launched."""
    return resolve(chosen(run_config, setting_entries()))
