"""Protocols: the settings that a paper or its authors' code prescribe, and a preset's departures from them.

The file protocol.toml in a paper's folder has a table for each protocol: ``cite``, then the paper's values under the
setting keys, "not stated" where paper and code are silent. ``base`` names another table to start from. A setting that a
protocol leaves out has the default. The protocol of a compared method consists of the protocol of the comparison and,
on top, the values that the method's own paper prescribes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.data import with_arguments
from fedsel_app.config.plugins import unknown_name
from fedsel_app.presets.layers import with_variant
from fedsel_app.presets.preset import Preset, flatten, read_toml
from fedsel_app.wiring.configuration import known_defaults, setting_entries

NOT_STATED = "not stated"
"""Value of a setting that neither a paper nor its authors' code states. Any other text describes what is known."""


@dataclass(frozen=True)
class Protocol:
    """Protocol: its source, and the values of the settings that it names.

    Attributes
    ----------
    cite : paper, table and sections
    values : setting key -> value, or `NOT_STATED`
    """

    cite: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)

    def overlaid(self, upper: Self) -> Self:
        """Protocol `upper` on top of this one, and its source if it names one."""
        replaced = with_arguments(upper.values)
        lower = {key: value for key, value in self.values.items() if key not in replaced}
        return replace(self, cite=upper.cite or self.cite, values={**lower, **upper.values})

    def value(self, key: str) -> Value:
        """Value of the setting `key` for display; `NOT_STATED` if the protocol leaves it out."""
        return self.values.get(key, NOT_STATED)


def read_protocol(path: Path, name: str) -> Protocol:
    """Protocol `name` of the file at `path`.

    Raises ConfigError if the file cannot be read, or has no such protocol or setting.
    """
    tables = read_toml(path)
    table = tables.get(name)
    if not isinstance(table, dict):
        raise unknown_name("protocol", name, tables, f"another table of {path}")
    values = flatten(table)
    base, cite = str(values.pop("base", "")), str(values.pop("cite", ""))
    beneath = read_protocol(path, base) if base else Protocol()
    if unknown := values.keys() - known_defaults().keys():
        raise ConfigError(f"The protocol {name} of {path} names {', '.join(sorted(unknown))}, and that is no setting.")
    return beneath.overlaid(Protocol(cite, values))


def protocol_of(preset: Preset) -> Protocol:
    """The protocols of `preset` merged into one, with the citation of the last; an empty protocol if it names none."""
    joined = Protocol()
    for path, name in preset.protocols:
        joined = joined.overlaid(read_protocol(path, name))
    return joined


def resolved(preset: Preset) -> dict[str, Value]:
    """Setting key -> value, the defaults included."""
    return known_defaults() | with_variant(preset.settings, setting_entries())


def differences(settings: Mapping[str, Value], protocol: Protocol) -> list[str]:
    """Keys of `settings` whose value differs from the protocol's."""
    prescribed = known_defaults() | dict(protocol.values)
    return [key for key, value in settings.items() if value != prescribed[key]]
