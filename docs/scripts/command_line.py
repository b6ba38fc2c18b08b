"""Page of the command line: `python docs/scripts/command_line.py` writes docs/command-line.md."""

import argparse
from pathlib import Path

from simulation.cli import parser
from simulation.command_line.parser import EXAMPLES


def page() -> str:
    """Text of the page: for each command its examples and its options, as `--help` has them."""
    lines = [
        "# Command line",
        "",
        "These are the commands of fedsel with their arguments. The option `--help` of a command prints the same.",
        "A value in parentheses is the default.",
        "The script `docs/scripts/command_line.py` generates this page from the parser.",
        "",
        "The exit code is 0 if a command did what it should, 1 if it failed, 2 if an argument or a setting is wrong,",
        "and 130 if it was interrupted.",
    ]
    for name, command in _commands(parser()).items():
        lines += ["", f"## {name}", "", *_examples(name), *_table(command)]
        for below, nested in _commands(command).items():
            lines += ["", f"### {name} {below}", *_table(nested)]
    return "\n".join([*lines, ""])


def _commands(above: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    groups = [action.choices for action in above._actions if isinstance(action, argparse._SubParsersAction)]
    return {name: command for group in groups for name, command in group.items()}


def _examples(name: str) -> list[str]:
    """The examples as a list; each command is run by a test."""
    return [f"- `{line}`: {meaning}" for line, meaning in EXAMPLES[name].items()]


def _table(command: argparse.ArgumentParser) -> list[str]:
    rows: list[str] = []
    for action in command._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
        if action.choices and not action.metavar:
            value = ", ".join(action.choices)
        named = " ".join(part for part in (", ".join(action.option_strings), str(value)) if part)
        rows.append(f"| `{named}` | {action.help or ''} |".replace("A|B", "A\\|B"))
    return ["", "| argument | meaning |", "|---|---|", *rows] if rows else []


if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("command-line.md").write_text(page(), encoding="utf-8")
