"""Protocols: the settings that a paper or its authors' code prescribe, and a preset's departures from them.

A preset names its ``protocol``, a table of the file protocol.toml in its folder, and lists its ``[[departures]]``.
The file protocol.toml in a paper's folder has a table for each protocol: ``cite``, then the paper's values under the
setting keys, "not stated" where paper and code are silent. ``base`` names another table to start from. A setting that a
protocol leaves out has the default. The protocol of a compared method consists of the protocol of the comparison and,
on top, the values that the method's own paper prescribes.
"""

import argparse
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.data import with_arguments
from fedsel_app.config.plugins import unknown_name
from fedsel_app.presets.preset import (
    FOLDER,
    PROTOCOL_FILE,
    Preset,
    flatten,
    load_preset,
    preset_files,
    read_preset,
    read_toml,
)
from fedsel_app.wiring.configuration import known_defaults
from laboratory.presets import named
from simulation.workbench.command_line.listing import value_text
from simulation.workbench.command_line.parser import Subparsers

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


class Departure(NamedTuple):
    """Departure of a preset from its protocol in one setting: the preset's value, and the reason."""

    ours: Value
    why: str


@dataclass(frozen=True)
class PaperPreset(Preset):
    """Preset, with what it says of its paper.

    Attributes
    ----------
    protocols : file of each protocol and its name in the file; later protocols override earlier ones
    departures : setting key -> listed departure from the protocol; a preset on top lists those of its own settings
    """

    protocols: tuple[tuple[Path, str], ...] = ()
    departures: Mapping[str, Departure] = field(default_factory=dict)

    def overlaid(self, upper: Self) -> Self:
        """Preset `upper` on top of this one; see `Preset.overlaid`."""
        lower = self.without(with_arguments(upper.settings)).departures
        protocols = upper.protocols or self.protocols
        return replace(super().overlaid(upper), protocols=protocols, departures={**lower, **upper.departures})

    def without(self, keys: Container[str]) -> Self:
        """This preset without the settings `keys` and their listed departures."""
        left = {key: entry for key, entry in self.departures.items() if key not in keys}
        return replace(super().without(keys), departures=left)

    def of_method(self, name: str) -> Self:
        """Preset of the runs of the strategy `name`, whose protocol is on top of the shared one."""
        own = (self.methods or {}).get(name)
        return replace(super().of_method(name), protocols=self.protocols + (own.protocols if own else ()))


def load_paper_preset(name: str) -> PaperPreset:
    """Preset with its protocols and departures. Raises ConfigError as `load_preset` does, and if these are damaged."""
    load_preset(name)  # refuses what is no preset
    path = Path(name) if name.endswith(".toml") else preset_files()[name]
    (preset, base), table = read_preset(path), read_toml(path)
    tables: Any = table.get("methods", {})
    methods: Any = preset.methods and {key: _of_paper(of, tables[key], path) for key, of in preset.methods.items()}
    own = replace(_of_paper(preset, table, path), methods=methods)
    return load_paper_preset(base).overlaid(own) if base else own


def _of_paper(preset: Preset, table: Mapping[str, object], path: Path) -> PaperPreset:
    """The preset with the entries ``protocol`` and ``departures`` of its `table`, which is in the file at `path`.

    The file of the protocols is in the same folder, or else in the app's folder of the same paper.
    """
    protocol, listed = table.get("protocol", ""), table.get("departures", [])
    beside = path.with_name(PROTOCOL_FILE)
    file = beside if beside.is_file() else FOLDER / path.parent.name / PROTOCOL_FILE
    departures: dict[str, Departure] = {}
    for entry in listed if isinstance(listed, list) else [listed]:
        settings = flatten(entry) if isinstance(entry, Mapping) else {}
        why = settings.pop("why", None)
        if not isinstance(why, str) or not settings:
            raise ConfigError(
                f"Each entry of [[departures]] in the preset {path} must have a 'why' and settings that it explains."
            )
        departures |= {key: Departure(ours, why) for key, ours in settings.items()}
    protocols = ((file, str(protocol)),) if protocol else ()
    return PaperPreset(preset.settings, None, preset.strategies, protocols, departures)


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


def protocol_of(preset: PaperPreset) -> Protocol:
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
    preset = load_paper_preset(named(arguments.name))
    console = Console(highlight=False)
    for one in [preset, *map(preset.of_method, preset.methods or {})]:
        console.print(f"Protocol: {protocol_of(one).cite or 'none'}", markup=False)
    for table in departure_tables(preset):
        console.print("", table)
    return 0


def departure_tables(preset: PaperPreset) -> list[Table]:
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


def _departing(preset: PaperPreset) -> dict[str, tuple[Value, Value]]:
    """Setting key -> the protocol's value and the preset's value, for the settings with different values."""
    settings = resolved(preset)
    protocol = protocol_of(preset)
    return {key: (protocol.value(key), settings[key]) for key in differences(settings, protocol)}


def _departure_table(title: str, preset: PaperPreset, keys: Iterable[str]) -> Table:
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
