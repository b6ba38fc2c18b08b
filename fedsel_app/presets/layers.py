"""Layers of a run's settings: defaults, a preset, the user's settings, each with the values of its variant."""

from collections.abc import Iterable, Mapping

from fedsel_app.config import RunConfig, Value
from fedsel_app.config.data import with_arguments
from fedsel_app.config.server import ASYNCHRONOUS
from fedsel_app.config.settings import Entry
from fedsel_app.presets.preset import PresetConfig, load_preset


def with_variant(settings: Mapping[str, Value], entries: Iterable[Entry]) -> dict[str, Value]:
    """`settings` without `variant`, and beneath them its values: those of the paper's text or of the authors' code."""
    variant = PresetConfig.from_values(settings).variant
    switches = [entry for entry in entries if entry.variants and variant != PresetConfig.variant]
    values = {entry.key: getattr(entry.variants, variant) for entry in switches}
    return values | {key: value for key, value in settings.items() if key != "variant"}


def layered(overrides: Mapping[str, Value], entries: Iterable[Entry]) -> dict[str, Value]:
    """Values of the preset in `overrides` with its settings for the strategy, and `overrides` on top of them.

    Below them are the defaults of an asynchronous server. Raises ConfigError as `load_preset` does.
    """
    values = _layered(overrides, entries)
    return {**ASYNCHRONOUS, **values} if values.get("waiting") == "asynchronous" else values


def _layered(overrides: Mapping[str, Value], entries: Iterable[Entry]) -> dict[str, Value]:
    settings = {key: value for key, value in overrides.items() if key != "preset"}
    upper = with_variant(settings, entries)
    if not (name := str(overrides.get("preset", ""))):
        return upper
    preset = load_preset(name)
    strategy = settings.get("strategy", preset.settings.get("strategy", RunConfig.strategy))
    lower = preset.of_method(str(strategy)).without(with_arguments(settings))
    return {**with_variant(lower.settings, entries), **upper}


def chosen(run_config: Mapping[str, Value], entries: Iterable[Entry]) -> dict[str, Value]:
    """Values in the run configuration of Flower that its user has set.

    Flower passes its table of defaults with the user's values already inserted. So a value that equals its default
    counts as not set, and a preset's value takes precedence.
    """
    defaults = {entry.key: entry.default for entry in entries}
    return {key: value for key, value in run_config.items() if defaults.get(key) != value}
