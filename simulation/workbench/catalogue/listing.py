"""Lists of settings and presets by group: lines for a terminal of any width."""

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.settings import Entry
from fedsel_app.config.words import MEANT, did_you_mean
from fedsel_app.presets.preset import FOLDER, Preset, load_preset, preset_files, summary
from fedsel_app.wiring.configuration import known_defaults, setting_entries, setting_groups
from simulation.workbench.catalogue.pipeline import OWN, equal
from simulation.workbench.catalogue.protocols import differences, protocol_of, resolved

GroupedEntries = Mapping[str, Sequence[Entry]]
"""Purpose of a group -> its settings."""
Sections = dict[str, list[tuple[int, str]]]
"""Heading -> the texts below it, each after its indent in characters."""


def first_settings() -> GroupedEntries:
    """Settings that a user sets first."""
    groups = {purpose: [entry for entry in entries if entry.first] for purpose, entries in matching_settings().items()}
    return {purpose: entries for purpose, entries in groups.items() if entries}


def matching_settings(word: str = "") -> GroupedEntries:
    """Settings with `word`, in upper or lower case, in their key, meaning, choices or bounds; by default all settings.

    Raises ConfigError if there is none. The message names the nearest keys.
    """
    groups = {
        group.purpose: [entry for entry in group.entries if word.lower() in f"{entry.key}\n{meaning_of(entry)}".lower()]
        for group in setting_groups()
    }
    if not any(groups.values()):
        words = " ".join(f"{entry.key} {entry.meaning}" for entry in setting_entries()).split()
        meant = MEANT.get(word.lower().replace("_", "-"))
        hint = f" Did you mean '{meant}'?" if meant else did_you_mean(word.lower(), words)
        hint = hint or " `fedsel settings --all` lists all of them."
        raise ConfigError(f"No setting has {word!r} in its key or its meaning.{hint}")
    return {purpose: entries for purpose, entries in groups.items() if entries}


def setting_lines(groups: GroupedEntries, width: int, *, choices: bool = False) -> list[str]:
    """Lines of at most `width` characters: a group's purpose, then each key with its default, then its meaning.

    With `choices` each choice has its own line with its meaning.
    """
    sections: Sections = {}
    for purpose, entries in groups.items():
        sections[purpose] = []
        for entry in entries:
            apart = entry.choices if choices else {}
            sections[purpose] += [
                (2, f"{entry.key} = {value_text(entry.default)}"),
                (6, meaning_of(entry, allowed=not apart)),
                *((8, f"{choice}: {described}" if described else choice) for choice, described in apart.items()),
            ]
    return _lines(sections, width)


def preset_lines(width: int) -> list[str]:
    """Lines of at most `width` characters: the folder of a paper, then each preset with its first line."""
    sections: Sections = {"general": []}
    for name, path in sorted(preset_files().items(), key=lambda item: item[1].parent.name):
        folder = "general" if path.parent == FOLDER else path.parent.name
        sections.setdefault(folder, []).extend([(2, name), (6, summary(name))])
    return _lines(sections, width)


def preset_description(name: str, width: int) -> list[str]:
    """Lines of at most `width` characters about one preset: its summary, and its protocols and settings by method."""
    preset = load_preset(name)
    settings = resolved(preset)
    first = [summary(name)] if name in preset_files() else []
    kind = f"{OWN}: {', '.join(preset.methods)}" if preset.methods else equal(settings)
    headed = {
        name: [*first, _cited(preset), f"Comparisons: {kind}", f"Strategies: {', '.join(preset.strategies) or 'any'}"],
        "Settings that differ from the defaults": _set(settings, known_defaults()),
    }
    for method in preset.methods or {}:
        of_method = preset.of_method(method)
        headed[f"Settings that differ from these for {method}"] = [
            _cited(of_method),
            *_set(resolved(of_method), {**settings, "strategy": method}),
        ]
    return _lines({heading: [(2, line) for line in lines] for heading, lines in headed.items()}, width)


def _cited(preset: Preset) -> str:
    return f"Protocol {preset.protocols[-1][1]}: {protocol_of(preset).cite}" if preset.protocols else "No protocol"


def _set(settings: Mapping[str, Value], others: Mapping[str, Value]) -> list[str]:
    return [f"{key} = {value_text(value)}" for key, value in settings.items() if value != others[key]]


def departure_tables(name: str) -> list[Table]:
    """Tables of a preset's departures from its protocol: one shared by all methods, then one for each method's own.

    There are none if the preset follows no protocol.
    """
    preset = load_preset(name)
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


def _lines(sections: Sections, width: int) -> list[str]:
    lines: list[str] = []
    for heading, items in sections.items():
        lines += [""] if lines else []
        for indent, text in [(0, heading), *items]:
            margin = " " * indent
            lines += textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
    return lines


def value_text(value: Value) -> str:
    """Text of a value as TOML writes it."""
    return json.dumps(value, ensure_ascii=False)


def meaning_of(entry: Entry, *, allowed: bool = True) -> str:
    """Meaning of a setting, with its choices or bounds if `allowed`, and the values of paper and code."""
    parts = [entry.meaning, entry.allowed if allowed else ""]
    if entry.variants:
        text, code = (value if isinstance(value, str) else value_text(value) for value in entry.variants)
        parts.append(f"paper's text {text}, authors' code {code}")
    return "; ".join(part for part in parts if part)
