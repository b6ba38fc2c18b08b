"""Configuration of a run on its server: all settings, checked, and the class of the method.

A setting that cannot have an effect under the other settings is idle, and refused (`refuse_idle`).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from fedsel_app.config import (
    DECLARED,
    GROUPS,
    ConfigError,
    RunConfig,
    Settings,
    SharedSettings,
    Value,
    read_groups,
    refuse_unknown,
)
from fedsel_app.config.settings import Conditions, Entry, Reading
from fedsel_app.presets.preset import Preset, PresetConfig, chosen, layered, load_preset, own_keys
from fedsel_app.wiring.validation import validate_combination
from strategies import STRATEGIES, find_strategy
from strategies.base import SelectionStrategy

PROBE = "probe-batches", "probe-bits"
"""Settings of the loss probe, which a method asks for, or links that depend on the losses."""


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


def refuse_idle(given: Iterable[str], runs: Collection[Mapping[str, Value]], preset: str = "") -> None:
    """Raise ConfigError if no run reads one of the `given` settings; `runs` are the settings of each run.

    It is also raised for a setting in the user's file `preset` that neither these runs nor runs of the file alone read,
    unless the file states every setting, as a comparison writes it for each of its runs.
    """
    _refuse(given, runs)
    if preset.endswith(".toml"):
        strategies = dict.fromkeys(str(values["strategy"]) for values in runs)
        stated = own_keys(Path(preset), strategies)
        if all(values.keys() <= set(stated) for values in runs):
            return
        alone = [resolve({"preset": preset, "strategy": name}).values() for name in strategies]
        try:
            _refuse(stated, [*runs, *alone])
        except ConfigError as error:
            raise ConfigError(f"The preset {preset}: {error}") from error


def is_idle(key: str, values: Mapping[str, Value]) -> bool:
    """True if a run with the settings `values` does not read the setting `key`."""
    return bool(_unmet(key, values)) or (key in PROBE and not _probes(key, values))


def _refuse(given: Iterable[str], runs: Collection[Mapping[str, Value]]) -> None:
    for key in given:
        unmet = [_unmet(key, values) for values in runs if key in values]
        if unmet and all(unmet):
            owner, reading = unmet[0][0]
            chosen = sorted({_typed(values[owner]) for values in runs if not reading.holds(values[owner])})
            first = _typed(reading.values[0])
            remedy = f"another {owner}" if reading.excluded else f"{owner}={first}" if first else f"no {owner}"
            raise ConfigError(
                f"With {owner}={' and '.join(chosen)}, '{key}' has no effect: leave it out, or set {remedy}."
            )
        if key in PROBE and not any(_probes(key, values) for values in runs):
            raise ConfigError(
                f"Leave '{key}' out: no method here measures losses before it selects, or none by this setting."
            )


def _unmet(key: str, values: Mapping[str, Value]) -> list[tuple[str, Reading]]:
    """The fewest conditions, over the alternatives of `key`, that do not hold; none if it is read."""
    alternatives = [
        [(owner, reading) for owner, reading in conditions.items() if not reading.holds(values[owner])]
        for conditions in _read_by(key, str(values["strategy"]))
    ]
    return min(alternatives, key=len, default=[])


def _read_by(key: str, strategy: str) -> tuple[Conditions, ...]:
    if key in DECLARED:
        return DECLARED[key].read_by
    method = find_strategy(strategy)
    entries = {entry.key: entry for entry in method.Config.entries(f"{method.name}.")}
    return entries[key].read_by


def _probes(key: str, values: Mapping[str, Value]) -> bool:
    """True if clients measure losses before the selection, and read the setting `key` for it."""
    method = find_strategy(str(values["strategy"]))
    needs = method.needs(method.Config.from_values(values, f"{method.name}."))
    asked = needs.probed_numbers > 0 or values["link-coupling"] == "inverted-loss"
    return asked and (key != PROBE[0] or needs.probe_batches is None)


def _typed(value: Value) -> str:
    """Value as a user types it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
