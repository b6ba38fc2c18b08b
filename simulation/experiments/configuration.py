"""Configuration of a run: defaults, then a preset, then the user's settings, each with the values of its `variant`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from simulation.experiments.node_configuration import client_settings
from simulation.experiments.presets import Preset, PresetConfig, load_preset
from simulation.experiments.validation import validate_combination
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

        Raises
        ------
        ConfigError
            For an unknown key or method, a value out of range, or incompatible settings.
        """
        values = with_variant(values)
        strategy = find_strategy(str(values.get("strategy", RunConfig.strategy)))
        refuse_unknown(values, [*known_defaults(), *strategy.Config.keys(f"{strategy.name}.")])
        groups = read_groups(values)
        if groups["data"].data in ("synthetic", "regression") and groups["data"].synthetic_clients == 0:
            groups["data"] = replace(groups["data"], synthetic_clients=groups["run"].clients)
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


def variant_values(variant: str) -> dict[str, Value]:
    """Setting key -> value in the paper's text or in the authors' code, for all settings for which they differ."""
    if variant == PresetConfig.variant:
        return {}
    return {entry.key: getattr(entry.variants, variant) for entry in setting_entries() if entry.variants}


def with_variant(settings: Mapping[str, Value]) -> dict[str, Value]:
    """`settings` with the values of their `variant` added. The values in `settings` take precedence."""
    variant = PresetConfig.from_values(settings).variant
    return variant_values(variant) | {key: value for key, value in settings.items() if key != "variant"}


def resolve(overrides: Mapping[str, Value]) -> AppConfig:
    """Configuration from the defaults, the preset in `overrides` with its settings for the strategy, and `overrides`.

    Raises
    ------
    ConfigError
        As in `AppConfig.from_values` and `load_preset`, and if a preset has an invalid setting for a method.
    """
    settings = {key: value for key, value in overrides.items() if key != "preset"}
    name = str(overrides.get("preset", ""))
    if not name:
        return AppConfig.from_values(settings)
    preset = load_preset(name)
    validate_methods(preset, name)
    strategy = settings.get("strategy", preset.settings.get("strategy", RunConfig.strategy))
    return AppConfig.from_values({**with_variant(preset.of_method(str(strategy)).settings), **with_variant(settings)})


def validate_methods(preset: Preset, name: str) -> None:
    """Raise ConfigError if the preset `name` has an unknown setting or a value out of range for a method."""
    for strategy, own in (preset.methods or {}).items():
        try:
            method = find_strategy(strategy)
            refuse_unknown(own.settings, [*known_defaults(), *method.Config.keys(f"{method.name}.")])
            read_groups(own.settings)
            method.Config.from_values(own.settings, f"{method.name}.")
        except ConfigError as error:
            raise ConfigError(f"[methods.{strategy}] in the preset {name}: {error}") from error


def resolve_run_config(run_config: Mapping[str, Value], node_config: Mapping[str, Value] | None = None) -> AppConfig:
    """Configuration of a run that Flower launched; for a client, with the settings in its `node_config`.

    Flower passes its table of defaults with the user's values already inserted. So a value that equals its default
    counts as not set, and a preset's value takes precedence.

    Raises
    ------
    ConfigError
        For a key of `node_config` that is not a setting of a single client.
    """
    own = client_settings(node_config or {})
    defaults = known_defaults()
    return resolve({key: value for key, value in run_config.items() if defaults.get(key) != value} | own)
