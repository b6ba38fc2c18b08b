"""Command-line arguments of `fedsel`: those that commands share, settings, grids and seeds, and its subcommands."""

import argparse
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from fedsel_app.config import ConfigError, RunConfig, Value

Named = TypeVar("Named")

FAILURE = 1
"""Exit code of a command whose run or check failed."""


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
    values = named_once("--set", map(parse_setting, arguments.set))
    for key in ("preset", *RunConfig.keys(), "out", "engine"):
        given = getattr(arguments, key.replace("-", "_"), None)
        if given is None:
            continue
        if values.setdefault(key, given) != given:
            raise ConfigError(f"Give '{key}' once: --{key} says {given}, and --set says {values[key]}.")
    return values


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
    """Grids by setting, each as `parse_grid` reads it. Raises ConfigError also if two have the same setting."""
    grids: dict[str, list[Value]] = {}
    for key, values in map(parse_grid, texts):
        if key in grids:
            raise ConfigError(f"Give all values of '{key}' in one --grid: --grid {key}=VALUE,VALUE.")
        grids[key] = values
    return grids


def parse_grid(text: str) -> tuple[str, list[Value]]:
    """Grid of the form KEY=V1,V2. Each value is read as by `parse_setting`; text with a comma needs quotes as in TOML.

    Raises ConfigError if KEY, = or values are missing.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ConfigError(f"--grid takes KEY=VALUE,VALUE. Got {text!r}.")
    with suppress(tomllib.TOMLDecodeError):
        listed = tomllib.loads(f"values = [{values}]")["values"]
        if all(isinstance(value, bool | int | float | str) for value in listed):
            return key.strip(), listed
    return key.strip(), [parse_setting(f"{key}={value.strip()}")[1] for value in values.split(",")]


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
