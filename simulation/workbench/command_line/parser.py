"""Parser of the commands: their examples, as `--help` and docs/command-line.md show them, and their errors.

An error is one sentence that says what to type.
"""

import argparse
from collections.abc import Mapping
from typing import NoReturn

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
    "model": {
        "fedsel model runs/first --out first.safetensors": "write the last model of a run",
    },
    "data": {
        "fedsel data": "describe the digits, and what each client has of them",
        "fedsel data --set data=npz --set data-path=mine.npz": "describe a file of yours",
    },
    "methods": {
        "fedsel methods": "list the methods with their sources and needs",
    },
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
    "request": {
        "fedsel request north": "make a folder with a key, and the request for the admin",
    },
    "start": {
        "fedsel start server": "run the server",
        "fedsel start client-0 --data /data/mine.npz": "run a client with its own data",
    },
    "submit": {
        "fedsel submit federation/admin --cohort 2 --rounds 5": "submit a run to a federation, and wait until it ends",
    },
    "status": {
        "fedsel status federation/admin": "show the connected clients and the current round",
    },
    "stop": {
        "fedsel stop federation/admin": "end the run in progress",
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
