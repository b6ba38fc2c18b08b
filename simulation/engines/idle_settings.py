"""Idle settings: a setting that cannot have an effect under the other settings is refused (`refuse_idle`)."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fedsel_app.config import DECLARED, ConfigError, Value
from fedsel_app.config.settings import Conditions, Reading
from fedsel_app.presets.preset import OF_PAPER, read_preset, read_toml
from fedsel_app.wiring.configuration import resolve
from strategies import find_strategy

PROBE = "probe-batches", "probe-bits"
"""Settings of the loss probe, which a method asks for, or links that depend on the losses."""


def refuse_idle(given: Iterable[str], runs: Collection[Mapping[str, Value]], preset: str = "") -> None:
    """Raise ConfigError if no run reads one of the `given` settings; `runs` are the settings of each run.

    It is also raised for a setting in the user's file `preset` that neither these runs nor runs of the file alone read,
    unless the file states every setting, as a comparison writes it for each of its runs.
    """
    _refuse(given, runs)
    if preset.endswith(".toml"):
        strategies = dict.fromkeys(str(values["strategy"]) for values in runs)
        stated = _own_keys(Path(preset), strategies)
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


def _own_keys(path: Path, strategies: Collection[str]) -> list[str]:
    """Keys of the settings in a preset's file for runs of the `strategies`, without those of its base.

    None of a paper's preset, which has a protocol or departures: it may state what only some of its runs read.
    """
    if read_toml(path).keys() & {*OF_PAPER}:
        return []
    preset = read_preset(path)[0]
    methods = (of_method.settings for name, of_method in (preset.methods or {}).items() if name in strategies)
    return list(dict.fromkeys([*preset.settings, *(key for settings in methods for key in settings)]))
