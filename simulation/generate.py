"""Generated texts of the settings: `python -m simulation.generate` writes them in a checkout.

They are the table in pyproject.toml, the page docs/settings.md and the module of typed keywords.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedsel_app.config import Value
from fedsel_app.config.settings import Entry
from simulation.experiments.configuration import known_defaults, setting_groups
from simulation.experiments.listing import settings_page
from simulation.python_interface.keywords import OWN_PARAMETERS, keyword_of

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\[tool\.flwr\.app\.config\]\n.*?(?=^\[tool\.setuptools\])", re.MULTILINE | re.DOTALL)
KEYWORDS = '''"""Keywords of the settings, typed.

`python -m simulation.generate` writes this module.
"""

# fmt: off

from typing import Literal, TypedDict


class SettingKeywords(TypedDict, total=False):
    """Keywords of all settings, those of single methods too."""
'''


def generated(root: Path = ROOT) -> dict[Path, str]:
    """File of the checkout `root` -> its text, of the files that hold all settings."""
    project = root / "pyproject.toml"
    table = tomli_w.dumps({"tool": {"flwr": {"app": {"config": nested(known_defaults())}}}})
    return {
        project: TABLE.sub(lambda _: f"{table}\n", project.read_text(encoding="utf-8")),
        root / "docs" / "settings.md": settings_page(),
        root / "simulation" / "python_interface" / "setting_keywords.py": keywords_module(),
    }


def nested(values: Mapping[str, Value]) -> dict[str, Any]:
    """Settings as a TOML table, those of a method in a table of its own."""
    table: dict[str, Any] = {key: value for key, value in values.items() if "." not in key}
    for key, value in values.items():
        method, dot, name = key.partition(".")
        if dot:
            table.setdefault(method, {})[name] = value
    return table


def keywords_module() -> str:
    """Text of the module of typed keywords."""
    lines = [KEYWORDS]
    for group in setting_groups():
        entries = [entry for entry in group.kind.entries(group.prefix) if entry.key not in OWN_PARAMETERS]
        lines += [*(f"    {keyword_of(entry.key)}: {_type(entry)}\n" for entry in entries), "\n"] if entries else []
    return f"{''.join(lines).rstrip()}\n"


def _type(entry: Entry) -> str:
    choices = ", ".join(f'"{choice}"' for choice in entry.choices)
    return f"Literal[{choices}]" if entry.closed else type(entry.default).__name__


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
