"""Parser of the commands, whose errors are one sentence that says what to type."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from fedsel_app.config import ConfigError
from fedsel_app.config.examples import EXAMPLES
from fedsel_app.config.words import did_you_mean, instead_of_strategy, nearest_setting

USAGE_ERROR = 2
INVALID = re.compile(r"argument (\S+): invalid (choice|\w+ value): '?(.*?)'?(?: \(.*)?", re.DOTALL)
EXPECTED = re.compile(r"argument (\S+): expected .*")
REQUIRED = "the following arguments are required: "
OF_COMPARE = ("--seeds", "--strategies", "--grid", "--baseline")
"""Options of `fedsel compare`."""
NUMBERS = ("int", "positive")
"""Names of the types that read whole numbers."""


class Parser(argparse.ArgumentParser):
    """argparse's parser, and so are those of its subcommands."""

    def show_examples(self, command: str) -> None:
        """Put the examples of `command` between the usage and the options of the help."""
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        lines = [f"  {line}\n      {meaning}" for line, meaning in EXAMPLES[command].items()]
        self.description = "\n".join([*([self.description, ""] if self.description else []), "examples:", *lines])

    def error(self, message: str) -> NoReturn:
        """Print a sentence for the `message` of argparse, and exit with 2."""
        self.exit(USAGE_ERROR, f"fedsel: {self._sentence(message)} `{self.prog} --help` lists what there is.\n")

    def _sentence(self, message: str) -> str:
        if message.startswith(REQUIRED):
            named = message.removeprefix(REQUIRED).split(", ")
            return f"`{self.prog}` needs {' and '.join(self._example(name) for name in named)}."
        if (expected := EXPECTED.fullmatch(message)) is not None:
            return f"A value is missing: {self._example(expected[1])}."
        if (invalid := INVALID.fullmatch(message)) is None:
            return f"{message[:1].upper()}{message[1:]}."
        name, what, given = invalid.groups()
        if what == "choice":
            choices = [str(choice) for choice in self._action(name).choices or ()]
            return f"{name} is one of {', '.join(choices)}. Got {given!r}.{did_you_mean(given, choices)}"
        if what.removesuffix(" value") in NUMBERS:
            return f"{name} takes a whole number. Got {given!r}."
        return f"{name} takes {self._action(name).metavar}. Got {given!r}."

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
    """Raise ConfigError for the first of the `unread` among the `words` of a command, which no argument takes.

    `settings` are the keys that a user may mean by it.
    """
    option, _, given = unread[0].partition("=")
    listed = f"`fedsel {arguments.command} --help` lists them."
    if not option.startswith("-"):
        instead = "" if _joined(words, unread[0]) else instead_of_strategy(unread[0])
        if option.endswith(".toml") and hasattr(arguments, "preset"):
            instead = f" Say --preset {option}."
        said = f".{instead}" if instead else f"; {_joined(words, unread[0]) or listed}"
        raise ConfigError(f"The word {unread[0]!r} belongs to no option{said}")
    if option in OF_COMPARE and hasattr(arguments, "strategy"):
        raise ConfigError(f"`fedsel {arguments.command}` is one run, and {option} is of several: say fedsel compare.")
    hint = nearest_setting(option, settings) if hasattr(arguments, "set") else ""
    meant = hint.partition("'")[2].partition("'")[0]
    value = given or next((word for word in unread[1:2] if not word.startswith("--")), "VALUE")
    if not meant:
        raise ConfigError(f"There is no option {option}; {listed}")
    right = f"Say --{meant} {value}." if meant in vars(arguments) else f"A setting is given as --set {meant}={value}."
    raise ConfigError(f"There is no option {option}. {right}")


def _joined(words: Sequence[str], stray: str) -> str:
    """What to type for a value of two words, whose second is `stray`; empty where it is none."""
    place = list(words).index(stray)
    option, value = words[max(place - 2, 0) : place] if place >= 2 else ("", "")
    if not option.startswith("--") or value.startswith("--"):
        return ""
    if stray.startswith("="):
        return f"say {option} {value}={''.join([*words[place:], 'VALUE'][:2]).removeprefix('=')}."
    sign = "=" if option in ("--set", "--grid") and "=" not in value else ","
    return f"say {option} {value.rstrip(',')}{sign}{stray}."
