"""Parser of the commands: their examples, as `--help` and docs/command-line.md show them, and their errors.

An error is one sentence that says what to type.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from fedsel_app.config import ConfigError
from fedsel_app.config.settings import did_you_mean

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
        "fedsel compare --strategies oort,random --out runs/more --dry-run": "check everything, and list the runs",
    },
    "watch": {
        "fedsel watch runs/two": "follow a comparison",
        "fedsel watch runs/first": "follow one run",
        "fedsel watch runs/two --html": "follow it in a browser",
    },
    "report": {
        "fedsel report runs/two": "write the report of a comparison",
        "fedsel report runs/first": "write the report of one run",
        "fedsel report runs/first runs/second --out runs/both": "compare runs that exist",
    },
    "tune": {
        "fedsel tune --strategies oort,random --over lr=0.01..1 --out runs/tuned": "tune a setting for each method",
        "fedsel tune --strategies random --over 'value-bits=4|8' --out runs/bits": "tune it among some values",
    },
    "model": {
        "fedsel model runs/first --out first.safetensors": "write the last model of a run",
        "fedsel model runs/first --best --out best.safetensors": "write its best model",
    },
    "data": {
        "fedsel data": "describe the digits, and what each client has of them",
        "fedsel data --clients 5 --set partition=iid": "describe them under another partition",
        "fedsel data --set data=npz --set data-path=mine.npz": "describe a file of yours",
    },
    "methods": {
        "fedsel methods": "list the methods with their sources and needs",
        "fedsel methods oort": "show one method",
    },
    "check": {
        "fedsel check random": "check a method of fedsel",
        "fedsel check waiting:LongestWaiting": "check your own method",
    },
    "settings": {
        "fedsel settings": "list the settings with their defaults",
        "fedsel settings krum": "explain the settings that contain this word",
        "fedsel settings lr": "explain a setting",
    },
    "presets": {
        "fedsel presets": "list the presets",
        "fedsel presets paper-mnist": "show what a preset sets",
        "fedsel presets fedavg": "show FedAvg as published",
    },
    "provision": {
        "fedsel provision --server SERVER --clients 3 --out federation": "make a folder for each machine",
        "fedsel provision --add 2 --out federation": "add clients",
        "fedsel provision --revoke client-1 --out federation": "revoke a client",
    },
    "request": {
        "fedsel request north": "make a folder with a key, and the request for the admin",
    },
    "start": {
        "fedsel start server": "run the server",
        "fedsel start client-0 --data /data/mine.npz": "run a client with its own data",
        "fedsel start client-0": "run the client again; its folder keeps the settings",
    },
    "submit": {
        "fedsel submit federation/admin --cohort 2 --rounds 5": "submit a run to a federation, and wait until it ends",
        "fedsel submit federation/admin --strategy oort": "do the same with another method",
    },
    "status": {
        "fedsel status federation/admin": "show the connected clients and the current round",
    },
    "stop": {
        "fedsel stop federation/admin": "end the run in progress",
        "fedsel stop federation/admin NAME": "end the run of this name",
    },
    "sign": {
        "fedsel sign --out federation/admin/signing": "sign the app after a change",
    },
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
USAGE_ERROR = 2
INVALID = re.compile(r"argument (\S+): invalid (choice|\w+ value): '?(.*?)'?(?: \(.*)?", re.DOTALL)
EXPECTED = re.compile(r"argument (\S+): expected .*")
REQUIRED = "the following arguments are required: "
OF_COMPARE = ("--seeds", "--strategies", "--grid", "--baseline")
"""Options of `fedsel compare`."""
NUMBERS = {"int": "a whole number", "positive": "a whole number above 0"}
"""Names of the types that read whole numbers, and what they read."""


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
        """Print a sentence for the `message` of argparse, and exit with 2."""
        self.exit(USAGE_ERROR, f"fedsel: {self._sentence(message)} See `{self.prog} --help`.\n")

    def _sentence(self, message: str) -> str:
        if message.startswith(REQUIRED):
            names = message.removeprefix(REQUIRED).split(", ")
            return f"`{self.prog}` needs {' and '.join(self._example(name) for name in names)}."
        if (expected := EXPECTED.fullmatch(message)) is not None:
            return f"A value is missing: {self._example(expected[1])}."
        if (invalid := INVALID.fullmatch(message)) is None:
            return f"{message[:1].upper()}{message[1:]}."
        name, what, given = invalid.groups()
        if what == "choice":
            choices = [str(choice) for choice in self._action(name).choices or ()]
            return f"{name} is one of {', '.join(choices)}. Got {given!r}.{did_you_mean(given, choices)}"
        taken = NUMBERS.get(what.removesuffix(" value"), self._action(name).metavar)
        return f"{name} takes {taken}. Got {given!r}."

    def _action(self, name: str) -> argparse.Action:
        return next(
            action for action in self._actions if name in ("/".join(action.option_strings), action.metavar, action.dest)
        )

    def _example(self, name: str) -> str:
        action = self._action(name)
        return f"{name} {action.metavar or action.dest.upper()}" if action.option_strings else str(name)


def refuse_unread(
    arguments: argparse.Namespace, words: Sequence[str], unread: Sequence[str], settings: Iterable[str]
) -> NoReturn:
    """Raise ConfigError for the first `unread` word of the `words` of a command, which no argument takes.

    `settings` are the keys that the user may mean.
    """
    option, _, given = unread[0].partition("=")
    listed = f"`fedsel {arguments.command} --help` lists them."
    if not option.startswith("-"):
        raise ConfigError(f"The word {unread[0]!r} belongs to no option; {_joined(words, unread[0]) or listed}")
    if option in OF_COMPARE and hasattr(arguments, "strategy"):
        raise ConfigError(
            f"`fedsel {arguments.command}` carries out one run, and {option} is for several: use fedsel compare."
        )
    hint = did_you_mean(option.strip("-"), settings) if hasattr(arguments, "set") else ""
    meant = hint.partition("'")[2].partition("'")[0]
    value = given or next((word for word in unread[1:2] if not word.startswith("--")), "VALUE")
    if not meant:
        raise ConfigError(f"There is no option {option}; {listed}")
    right = f"Say --{meant} {value}." if meant in vars(arguments) else f"A setting is given as --set {meant}={value}."
    raise ConfigError(f"There is no option {option}. {right}")


def _joined(words: Sequence[str], stray: str) -> str:
    """What to type for a value of two words, the second of which is `stray`; empty if `stray` is not such a word."""
    place = list(words).index(stray)
    option, value = words[max(place - 2, 0) : place] if place >= 2 else ("", "")
    if not option.startswith("--") or value.startswith("--"):
        return ""
    if stray.startswith("="):
        return f"say {option} {value}={''.join([*words[place:], 'VALUE'][:2]).removeprefix('=')}."
    sign = "=" if option in ("--set", "--grid") and "=" not in value else ","
    return f"say {option} {value.rstrip(',')}{sign}{stray}."
