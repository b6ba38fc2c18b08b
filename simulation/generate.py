"""Generated texts of the settings: `python -m simulation.generate` writes them in a checkout.

The texts are the table in pyproject.toml, the page docs/settings.md and the stub of typed keywords.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedsel_app.config import Value
from fedsel_app.config.settings import Entry
from fedsel_app.wiring.configuration import known_defaults
from simulation.experiments.listing import settings_page
from simulation.python_interface.keywords import keyword_entries, keyword_of

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\[tool\.flwr\.app\.config\]\n.*?(?=^\[tool\.setuptools\])", re.MULTILINE | re.DOTALL)
KEYWORDS = """# Typed keywords of all settings. `python -m simulation.generate` writes this stub.
# fmt: off

from typing import Literal, TypedDict

class SettingKeywords(TypedDict, total=False):
"""


def generated() -> dict[Path, str]:
    """File of the checkout -> its text, for the files that contain all settings."""
    project = ROOT / "pyproject.toml"
    table = tomli_w.dumps({"tool": {"flwr": {"app": {"config": nested(known_defaults())}}}})
    return {
        project: TABLE.sub(lambda _: f"{table}\n", project.read_text(encoding="utf-8")),
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / "simulation" / "python_interface" / "setting_keywords.pyi": keywords_stub(),
    }


def nested(values: Mapping[str, Value]) -> dict[str, Any]:
    """Settings as a TOML table; each method has a table of its own."""
    table: dict[str, Any] = {key: value for key, value in values.items() if "." not in key}
    for key, value in values.items():
        method, dot, name = key.partition(".")
        if dot:
            table.setdefault(method, {})[name] = value
    return table


def keywords_stub() -> str:
    """Text of the stub of typed keywords."""
    keywords = (f"    {keyword_of(entry.key)}: {_type(entry)}\n" for entry in keyword_entries())
    return f"{KEYWORDS}{''.join(keywords)}"


def _type(entry: Entry) -> str:
    choices = ", ".join(f'"{choice}"' for choice in entry.choices)
    return f"Literal[{choices}]" if entry.closed else type(entry.default).__name__


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
