"""Protocols: the settings that a paper or its authors' code prescribe, and a preset's departures from them.

The file protocol.toml in a paper's folder has a table for each protocol: ``cite``, then the paper's values under the
setting keys, "not stated" where paper and code are silent. ``base`` names another table to start from. A setting that a
protocol leaves out has the default. The protocol of a compared method consists of the protocol of the comparison and,
on top, the values that the method's own paper prescribes.
"""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.data import with_arguments
from fedsel_app.config.plugins import unknown_name
from fedsel_app.presets.preset import Preset, flatten, load_preset, read_toml
from fedsel_app.wiring.configuration import known_defaults
from laboratory.presets import named
from simulation.workbench.catalogue.listing import value_text
from simulation.workbench.command_line.arguments import Subparsers

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
    return known_defaults() | dict(preset.settings)


def differences(settings: Mapping[str, Value], protocol: Protocol) -> list[str]:
    """Keys of `settings` whose value differs from the protocol's."""
    prescribed = known_defaults() | dict(protocol.values)
    return [key for key, value in settings.items() if value != prescribed[key]]


def register(commands: Subparsers) -> None:
    """Add `departures` to the commands of the laboratory."""
    command = commands.add_parser("departures", help="show where a preset departs from the protocol of its paper")
    command.add_argument("name", metavar="NAME", help="preset of fedsel or of laboratory/presets, or a file")
    command.set_defaults(call=departures_command)


def departures_command(arguments: argparse.Namespace) -> int:
    """`python -m laboratory departures`: print the protocols of a preset and its departures from them."""
    preset = load_preset(named(arguments.name))
    console = Console(highlight=False)
    for one in [preset, *map(preset.of_method, preset.methods or {})]:
        console.print(f"Protocol: {protocol_of(one).cite or 'none'}", markup=False)
    for table in departure_tables(preset):
        console.print("", table)
    return 0


def departure_tables(preset: Preset) -> list[Table]:
    """Tables of a preset's departures from its protocol: one shared by all methods, then one for each method's own.

    There are none if the preset follows no protocol.
    """
    if not preset.protocols:
        return []
    shared = _departing(preset)
    tables = [_departure_table("Departures from the protocol", preset, list(shared))]
    for method in preset.methods or {}:
        of_method = preset.of_method(method)
        if alone := [key for key, values in _departing(of_method).items() if shared.get(key) != values]:
            tables.append(_departure_table(f"Departures of {method}", of_method, alone))
    return tables


def _departing(preset: Preset) -> dict[str, tuple[Value, Value]]:
    """Setting key -> the protocol's value and the preset's value, for the settings with different values."""
    settings = resolved(preset)
    protocol = protocol_of(preset)
    return {key: (protocol.value(key), settings[key]) for key in differences(settings, protocol)}


def _departure_table(title: str, preset: Preset, keys: Iterable[str]) -> Table:
    """Table of the departures `keys`. A reason that several departures share is shown only for the first."""
    table = Table(title=title, box=None, title_justify="left", pad_edge=False)
    for column in ("setting", "paper", "ours", "why"):
        table.add_column(column, overflow="fold", no_wrap=column == "setting")
    departing = _departing(preset)
    by_reason: dict[str, list[str]] = {}
    for key in keys:
        why = preset.departures[key].why if key in preset.departures else "not listed"
        by_reason.setdefault(why, []).append(key)
    for why, alike in by_reason.items():
        for key in alike:
            values = (value if isinstance(value, str) else value_text(value) for value in departing[key])
            table.add_row(key, *values, why if key == alike[0] else "")
    return table
