"""Parser of the commands: their examples, as `--help` and docs/command-line.md show them, errors and shared arguments.

An error is one sentence that says what to type.
"""

import argparse
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar

from fedsel_app.config import ConfigError, RunConfig, Value

EXAMPLES: dict[str, dict[str, str]] = {
    "fedsel": {
        "fedsel run": "simulate one federation and print its result",
        "fedsel compare --strategies oort,random --out runs/two": "compare methods on the same seeds",
        "fedsel deploy --clients 3 --cohort 2": "train with real server and client processes on this machine",
    },
    "run": {
        "fedsel run --strategy random --out runs/first": "simulate one run of a method",
        "fedsel run --set lr=0.1 --dry-run": "change a setting, and see the plan without running it",
        "fedsel run --resume runs/first": "continue a run that was interrupted",
    },
    "deploy": {
        "fedsel deploy --clients 3 --cohort 2 --out runs/deployed": "train with a server and three clients",
        "fedsel deploy --resume runs/deployed": "continue a deployment that was interrupted",
    },
    "compare": {
        "fedsel compare --strategies oort,random --seeds 1,2,3 --out runs/two": "compare methods on the same seeds",
        "fedsel compare --strategies random --grid alpha=0.1,1 --out runs/alpha": "compare values of a setting",
    },
    "watch": {
        "fedsel watch runs/two": "follow a comparison",
        "fedsel watch runs/two --html": "follow it in a browser",
    },
    "report": {
        "fedsel report runs/two": "write the report of a comparison",
        "fedsel report runs/first runs/second --out runs/both": "compare runs that exist",
    },
    "tune": {
        "fedsel tune --strategies oort,random --over lr=0.01..1 --out runs/tuned": "tune a setting for each method",
    },
    "model": {"fedsel model runs/first --out first.safetensors": "write the last model of a run"},
    "data": {
        "fedsel data": "describe the digits, and what each client has of them",
        "fedsel data --set data=npz --set data-path=mine.npz": "describe a file of yours",
    },
    "methods": {"fedsel methods": "list the methods with their sources and needs"},
    "check": {
        "fedsel check random": "check a method of fedsel",
        "fedsel check waiting:LongestWaiting": "check your own method",
    },
    "settings": {
        "fedsel settings": "list the settings with their defaults",
        "fedsel settings lr": "explain a setting",
    },
    "presets": {
        "fedsel presets": "list the presets",
        "fedsel presets paper-mnist": "show what a preset sets",
    },
    "provision": {
        "fedsel provision --server SERVER --clients 3 --out federation": "make a folder for each machine",
        "fedsel provision --add 2 --out federation": "add clients",
        "fedsel provision --revoke client-1 --out federation": "revoke a client",
    },
    "request": {"fedsel request north": "make a folder with a key, and the request for the admin"},
    "start": {
        "fedsel start server": "run the server",
        "fedsel start client-0 --data /data/mine.npz": "run a client with its own data",
    },
    "submit": {
        "fedsel submit federation/admin --cohort 2 --rounds 5": "submit a run to a federation, and wait until it ends",
    },
    "status": {"fedsel status federation/admin": "show the connected clients and the current round"},
    "stop": {"fedsel stop federation/admin": "end the run in progress"},
    "sign": {"fedsel sign --out federation/admin/signing": "sign the app after a change"},
}
"""Command -> its main command lines, at most three, with what each does; "fedsel" has those of the whole program."""
GROUPS = {
    "simulate": ("run", "data"),
    "compare": ("compare", "tune"),
    "records": ("watch", "report", "model"),
    "deploy": ("deploy", "provision", "request", "start", "submit", "status", "stop", "sign"),
    "look up and check": ("methods", "check", "settings", "presets"),
}
"""What one does -> its commands, as `fedsel --help` shows them."""
FAILURE, USAGE_ERROR = 1, 2
"""Exit codes of a command whose run or check failed, and of one that cannot be read."""
Named = TypeVar("Named")


class Parser(argparse.ArgumentParser):
    """argparse's parser, with plain error sentences; also used for the subcommands."""

    def show_examples(self, command: str) -> None:
        """Put the examples of `command` between the usage and the options of the help."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        lines = [f"  {line}\n      {meaning}" for line, meaning in EXAMPLES[command].items()]
        self.description = "\n".join([*([self.description, ""] if self.description else []), "examples:", *lines])

    def show_groups(self, meanings: Mapping[str, str]) -> None:
        """Put the commands and their `meanings` after the examples, by `GROUPS`."""
        groups = [
            f"{title}:\n" + "\n".join(f"  {name:<10} {meanings[name]}" for name in names)
            for title, names in GROUPS.items()
        ]
        self.description = "\n\n".join([self.description or "", *groups])

    def error(self, message: str) -> NoReturn:
        """Print the `message` of argparse as one line, and exit with 2."""
        self.exit(USAGE_ERROR, f"fedsel: {message}. See `{self.prog} --help`.\n")


class Subparsers(Protocol):
    """Type of `argparse.ArgumentParser.add_subparsers`."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser:
        """Add the parser of one more subcommand."""


def add_settings(command: argparse.ArgumentParser, *keys: str) -> None:
    """Add the arguments that give a run its settings: --KEY for each of `keys` of `RunConfig`, --set for all others."""
    command.add_argument("--preset", help="named settings to start from, or a .toml file")
    for entry in RunConfig.entries():
        if entry.key in keys:
            default = f" ({entry.default})" if entry.default != "" else ""
            command.add_argument(f"--{entry.key}", type=type(entry.default), help=entry.meaning + default)
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
    add_allowed_code(command)


def add_allowed_code(command: argparse.ArgumentParser) -> None:
    """Add the argument that allows a user's own code."""
    command.add_argument(
        "--allow-code",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="allow code that only a preset or a run folder names",
    )


def add_engine(command: argparse.ArgumentParser) -> None:
    """Add the argument that names the engine of simulated runs."""
    command.add_argument(
        "--engine", choices=("auto", "inline", "ray"), help="train in this process, or in processes of Ray (auto)"
    )


def overrides(arguments: argparse.Namespace) -> dict[str, Value]:
    """Settings of the command line, by key. Raises ConfigError if two options disagree on one."""
    values = settings_given(arguments.set)
    for key in ("preset", *RunConfig.keys(), "out", "engine"):
        given = getattr(arguments, key.replace("-", "_"), None)
        if given is None:
            continue
        if values.setdefault(key, given) != given:
            raise ConfigError(f"Give '{key}' once: --{key} says {given}, and --set says {values[key]}.")
    return values


def settings_given(texts: Iterable[str]) -> dict[str, Value]:
    """Settings of the options --set, by key. Raises ConfigError if two disagree, and as `parse_setting` does."""
    return named_once("--set", map(parse_setting, texts))


def named_once(option: str, pairs: Iterable[tuple[str, Named]]) -> dict[str, Named]:
    """Names and values of an option that may be repeated. Raises ConfigError if two of them disagree on a name."""
    values: dict[str, Named] = {}
    for name, value in pairs:
        if values.setdefault(name, value) != value:
            raise ConfigError(f"Give '{name}' once: {option} says {values[name]}, and then {value}.")
    return values


def parse_setting(text: str) -> tuple[str, Value]:
    """Setting of the form KEY=VALUE. A value that is not TOML, or is a date in TOML, is plain text.

    Raises ConfigError if KEY or = is missing, and for a list or a table.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"--set takes KEY=VALUE. Got {text!r}.")
    try:
        table = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        table = {}
    parsed = table["value"] if len(table) == 1 else value
    if isinstance(parsed, list | dict):
        raise ConfigError(f"The '{key}' parameter must be true or false, a number or text. Got {value!r}.")
    return key, parsed if isinstance(parsed, bool | int | float | str) else value


def parse_grids(texts: Iterable[str]) -> dict[str, list[Value]]:
    """Grids of the form KEY=V1,V2, by setting. Each value is read as by `parse_setting`; text with a comma needs quotes
    as in TOML.

    Raises ConfigError if KEY, = or values are missing, or if two grids have the same setting.
    """
    grids: dict[str, list[Value]] = {}
    for text in texts:
        key, equals, values = map(str.strip, text.partition("="))
        if not (equals and key and values):
            raise ConfigError(f"--grid takes KEY=VALUE,VALUE. Got {text!r}.")
        if key in grids:
            raise ConfigError(f"Give all values of '{key}' in one --grid: --grid {key}=VALUE,VALUE.")
        grids[key] = [parse_setting(f"{key}={value.strip()}")[1] for value in values.split(",")]
        with suppress(tomllib.TOMLDecodeError):
            listed = tomllib.loads(f"values = [{values}]")["values"]
            if all(isinstance(value, bool | int | float | str) for value in listed):
                grids[key] = listed
    return grids


def parse_seeds(text: str) -> list[int]:
    """Seeds: whole numbers separated by commas. Raises ConfigError for anything else."""
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds takes whole numbers separated by commas. Got {text!r}.") from error


def positive(text: str) -> int:
    """Whole number above 0, for argparse. Raises ArgumentTypeError for anything else."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed. Got {text!r}")
    return int(text)


def folder(text: str) -> Path:
    """Absolute path, for argparse."""
    return Path(text).absolute()
