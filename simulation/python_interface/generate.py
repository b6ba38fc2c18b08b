"""Source of the settings' typed keywords: `python -m simulation.python_interface.generate` writes it."""

from collections.abc import Iterable
from pathlib import Path

from fedsel_app.config.settings import Entry
from simulation.experiments.configuration import SettingGroup, setting_groups
from simulation.python_interface.keywords import OWN_PARAMETERS, keyword_of

WIDTH = 120
FOLDER = Path(__file__).parent


def sources() -> dict[str, str]:
    """File name -> text: the settings that all methods share, and all settings, those of single methods too."""
    shared = [group for group in setting_groups() if not group.prefix]
    methods = [group for group in setting_groups() if group.prefix]
    return {
        "shared_keywords.py": _module("SharedKeywords", "TypedDict", "settings that all methods share", shared),
        "setting_keywords.py": _module("SettingKeywords", "SharedKeywords", "settings, each method's own too", methods),
    }


def _module(name: str, base: str, kind: str, groups: Iterable[SettingGroup]) -> str:
    own = base == "SharedKeywords"
    lines = [
        f'"""Keywords of the {kind}, typed.',
        "",
        "`python -m simulation.python_interface.generate` generates this module.",
        '"""',
        "",
        "from typing import Literal" if own else "from typing import Literal, TypedDict",
        *(["", "from simulation.python_interface.shared_keywords import SharedKeywords"] if own else []),
        "",
        "",
        f"class {name}({base}, total=False):",
        f'    """Keywords of the {kind}."""',
    ]
    for group in groups:
        entries = [entry for entry in group.kind.entries(group.prefix) if entry.key not in OWN_PARAMETERS]
        if entries:
            lines += ["", *(line for entry in entries for line in _field(entry))]
    return "\n".join(lines) + "\n"


def _field(entry: Entry) -> list[str]:
    """Lines of one keyword, broken as the formatter would."""
    name = keyword_of(entry.key)
    if not entry.closed:
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
