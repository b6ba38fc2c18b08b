"""Lists of settings and presets by group: lines for a terminal of any width."""

import json
import textwrap
from collections.abc import Mapping, Sequence

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.settings import Entry, did_you_mean
from fedsel_app.presets.preset import FOLDER, Preset, load_preset, preset_files, summary
from fedsel_app.wiring.configuration import known_defaults, setting_entries, setting_groups

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
        hint = did_you_mean(word, words) or " `fedsel settings --all` lists all of them."
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
    """Lines of at most `width` characters about one preset: its summary, and its settings, also those by method."""
    preset = load_preset(name)
    settings = _resolved(preset)
    first = [summary(name)] if name in preset_files() else []
    headed = {
        name: [*first, f"Strategies: {', '.join(preset.strategies) or 'any'}"],
        "Settings that differ from the defaults": _differing(settings, known_defaults()),
    }
    for method in preset.methods or {}:
        own = _differing(_resolved(preset.of_method(method)), {**settings, "strategy": method})
        headed[f"Settings that differ from these for {method}"] = own
    return _lines({heading: [(2, line) for line in lines] for heading, lines in headed.items()}, width)


def _resolved(preset: Preset) -> dict[str, Value]:
    return known_defaults() | dict(preset.settings)


def _differing(settings: Mapping[str, Value], others: Mapping[str, Value]) -> list[str]:
    return [f"{key} = {value_text(value)}" for key, value in settings.items() if value != others[key]]


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
    """Meaning of a setting, with its choices or bounds if `allowed`."""
    parts = [entry.meaning, entry.allowed if allowed else ""]
    return "; ".join(part for part in parts if part)
