"""Source of the settings' typed keywords: `python -m simulation.python_interface.generate` writes it."""

from collections.abc import Iterable
from pathlib import Path

from fedsel_app.config.settings import Entry
from simulation.experiments.configuration import SettingGroup, setting_groups
from simulation.python_interface.keywords import OWN_PARAMETERS, keyword_of

WIDTH = 120
FOLDER = Path(__file__).parent


def sources() -> dict[str, str]:
    """File name -> text: the settings that all methods share, and those of single methods."""
    shared = [group for group in setting_groups() if not group.prefix]
    methods = [group for group in setting_groups() if group.prefix]
    return {
        "shared_keywords.py": _module("SharedKeywords", "Keywords of the settings that all methods share", shared),
        "method_keywords.py": _module("MethodKeywords", "Keywords of the methods' own settings", methods),
    }


def _module(name: str, purpose: str, groups: Iterable[SettingGroup]) -> str:
    lines = [
        f'"""{purpose}, typed.',
        "",
        "`python -m simulation.python_interface.generate` generates this module.",
        '"""',
        "",
        "from typing import Literal, TypedDict",
        "",
        "",
        f"class {name}(TypedDict, total=False):",
        f'    """{purpose}."""',
    ]
    for group in groups:
        entries = [entry for entry in group.kind.entries(group.prefix) if entry.key not in OWN_PARAMETERS]
        if entries:
            lines += ["", *(line for entry in entries for line in _field(entry))]
    return "\n".join(lines) + "\n"


def _field(entry: Entry) -> list[str]:
    """Lines of one keyword, broken as the formatter would."""
    name = keyword_of(entry.key)
    if not entry.choices:
        return [f"    {name}: {type(entry.default).__name__}"]
    choices = [f'"{choice}"' for choice in entry.choices]
    whole = f"    {name}: Literal[{', '.join(choices)}]"
    if len(whole) <= WIDTH:
        return [whole]
    inner = f"        {', '.join(choices)}"
    lines = [inner] if len(inner) <= WIDTH else [f"        {choice}," for choice in choices]
    return [f"    {name}: Literal[", *lines, "    ]"]


if __name__ == "__main__":
    for file, text in sources().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
