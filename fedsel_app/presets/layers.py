"""Layers of a run's settings: defaults, a preset, the user's settings."""

from collections.abc import Iterable, Mapping

from fedsel_app.config import RunConfig, Value
from fedsel_app.config.data import with_arguments
from fedsel_app.config.server import ASYNCHRONOUS
from fedsel_app.config.settings import Entry
from fedsel_app.presets.preset import load_preset


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
