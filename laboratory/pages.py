"""Generated texts: `python -m laboratory pages` writes them in a checkout.

The texts are the table of settings in pyproject.toml, the pages docs/settings.md and docs/command-line.md, and the stub
of typed keywords.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedsel_app.config import Value
from fedsel_app.config.settings import Entry
from fedsel_app.wiring.configuration import known_defaults
from simulation.workbench.cli import parser
from simulation.workbench.command_line.listing import matching_settings, meaning_of, value_text
from simulation.workbench.command_line.parser import EXAMPLES, Subparsers
from simulation.workbench.python_interface.keywords import keyword_entries, keyword_of

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\[tool\.flwr\.app\.config\]\n.*?(?=^\[tool\.setuptools\])", re.MULTILINE | re.DOTALL)
KEYWORDS = """# Typed keywords of all settings. `python -m laboratory pages` writes this stub.
# fmt: off

from typing import Literal, TypedDict

class SettingKeywords(TypedDict, total=False):
"""


def generated() -> dict[Path, str]:
    """File of the checkout -> its text, for the files that contain all settings or all commands."""
    project = ROOT / "pyproject.toml"
    table = tomli_w.dumps({"tool": {"flwr": {"app": {"config": nested(known_defaults())}}}})
    return {
        project: TABLE.sub(lambda _: f"{table}\n", project.read_text(encoding="utf-8")),
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / "docs" / "command-line.md": command_line_page(),
        ROOT / "simulation" / "workbench" / "python_interface" / "setting_keywords.pyi": keywords_stub(),
    }


def nested(values: Mapping[str, Value]) -> dict[str, Any]:
    """Settings as a TOML table; each method has a table of its own."""
    table: dict[str, Any] = {key: value for key, value in values.items() if "." not in key}
    for key, value in values.items():
        method, dot, name = key.partition(".")
        if dot:
            table.setdefault(method, {})[name] = value
    return table


def settings_page() -> str:
    """Text of docs/settings.md: a table for each group of settings."""
    return "\n".join(
        [
            "# Settings",
            "",
            "Every setting by group: its default and its meaning.",
            "",
            "`python -m laboratory pages` writes this page.",
            *(line for purpose, entries in matching_settings().items() for line in settings_table(purpose, entries)),
            "",
        ]
    )


def settings_table(purpose: str, entries: Iterable[Entry]) -> list[str]:
    """Lines of a group of settings: its heading and its table."""
    rows = [
        (f"`{entry.key}`", f"`{value_text(entry.default)}`", meaning_of(entry).replace("|", "\\|")) for entry in entries
    ]
    table = [("key", "default", "meaning"), ("---", "---", "---"), *rows]
    return ["", f"## {purpose.removesuffix('.')}", "", *(f"| {' | '.join(row)} |" for row in table)]


def keywords_stub() -> str:
    """Text of the stub of typed keywords."""
    keywords = (f"    {keyword_of(entry.key)}: {_type(entry)}\n" for entry in keyword_entries())
    return f"{KEYWORDS}{''.join(keywords)}"


def _type(entry: Entry) -> str:
    choices = ", ".join(f'"{choice}"' for choice in entry.choices)
    return f"Literal[{choices}]" if entry.closed else type(entry.default).__name__


def command_line_page() -> str:
    """Text of docs/command-line.md: for each command its examples and its options, as `--help` has them."""
    commands = _commands(parser())
    uses = Counter(row for command in commands.values() for row in _rows(command))
    shared = [row for row, count in uses.items() if count > 2]
    lines = [
        "# Command line",
        "",
        "These are the commands of fedsel with their arguments. The option `--help` of a command prints the same.",
        "A value in parentheses is the default.",
        "`python -m laboratory pages` writes this page.",
        "",
        "The exit code is 0 if a command did its work, 1 if it failed, 2 if an argument or a setting is wrong,",
        "and 130 if it was interrupted.",
        "",
        "## Arguments of several commands",
        *_table(shared),
    ]
    for name, command in commands.items():
        rows = _rows(command)
        also = ", ".join(row.split("`")[1].split()[0] for row in rows if row in shared)
        lines += ["", f"## {name}", "", *_examples(name), *_table([row for row in rows if row not in shared])]
        lines += ["", f"Also `{also}`."] if also else []
        for below, nested in _commands(command).items():
            lines += ["", f"### {name} {below}", *_table(_rows(nested))]
    return "\n".join([*lines, ""])


def _commands(above: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = [action.choices for action in above._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: command for group in groups for name, command in group.items()}


def _examples(name: str) -> list[str]:
    """The examples as a list; each command is run by a test."""
    return [f"- `{line}`: {meaning}" for line, meaning in EXAMPLES[name].items()]


def _rows(command: argparse.ArgumentParser) -> list[str]:
    """Rows of the table of a command's arguments."""
    rows: list[str] = []
    for action in command._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
        if action.choices and not action.metavar:
            value = ", ".join(action.choices)
        named = " ".join(part for part in (", ".join(action.option_strings), str(value)) if part)
        rows.append(f"| `{named}` | {action.help or ''} |".replace("A|B", "A\\|B"))
    return rows


def _table(rows: list[str]) -> list[str]:
    return ["", "| argument | meaning |", "|---|---|", *rows] if rows else []


def register(commands: Subparsers) -> None:
    """Add `pages` to the commands of the laboratory."""
    commands.add_parser("pages", help="write the generated tables and pages of the checkout").set_defaults(call=write)


def write(arguments: argparse.Namespace) -> int:
    """`python -m laboratory pages`: write the generated texts."""
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
    return 0
