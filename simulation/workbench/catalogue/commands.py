"""Commands `fedsel settings` and `fedsel presets`, which print lists, and `fedsel trace`, which converts traces."""

import argparse
import textwrap
from collections.abc import Iterable
from pathlib import Path
from shutil import get_terminal_size

from rich.console import Console

from fedsel_app.records.reading import legible
from simulation.workbench.command_line.arguments import Subparsers, folder, positive


def register(commands: Subparsers) -> None:
    """Add `settings` and `presets` to the commands of `fedsel`."""
    listed = commands.add_parser("settings", help="list the settings with their defaults, choices and bounds")
    shown = listed.add_mutually_exclusive_group()
    shown.add_argument(
        "word",
        nargs="?",
        default="",
        metavar="WORD",
        help="explain all settings that have this word in their key or meaning",
    )
    shown.add_argument("--all", action="store_true", help="list all settings, not only those that a user sets first")
    listed.set_defaults(call=settings_command)
    named = commands.add_parser("presets", help="list the presets, or show one and where it departs from its paper")
    named.add_argument(
        "name", nargs="?", default="", metavar="NAME", help="preset to show, with its protocol and departures"
    )
    named.set_defaults(call=presets_command)
    converted = commands.add_parser("trace", help="convert a trace of real devices for the clock of simulations")
    converted.add_argument("trace", type=Path, metavar="FILE", help="file of FLASH or FedScale")
    converted.add_argument("--out", required=True, type=folder, metavar="FILE", help="a new .npz or .csv file")
    converted.add_argument("--batch-size", type=positive, default=32, help="examples of a local step, for speeds (32)")
    converted.set_defaults(call=trace_command)


def settings_command(arguments: argparse.Namespace) -> int:
    """`fedsel settings`: list, by group, the settings that a user sets first, all settings, or those with a word."""
    from simulation.workbench.catalogue.listing import first_settings, matching_settings, setting_lines

    width = get_terminal_size().columns
    every = matching_settings(arguments.word)
    groups = every if arguments.all or arguments.word else first_settings()
    print_list(setting_lines(groups, width, choices=bool(arguments.word)))
    if rest := sum(map(len, every.values())) - sum(map(len, groups.values())):
        more = f"{rest} more: `fedsel settings --all` lists them, `fedsel settings WORD` those that have a word."
        print("", *textwrap.wrap(more, width, break_on_hyphens=False), sep="\n")
    return 0


def presets_command(arguments: argparse.Namespace) -> int:
    """`fedsel presets`: list the presets by paper, or print one: protocols, settings, departures."""
    from fedsel_app.wiring.configuration import resolve
    from simulation.workbench.catalogue.listing import departure_tables, preset_description, preset_lines

    width = get_terminal_size().columns
    if arguments.name:
        resolve({"preset": arguments.name})
        print_list([*preset_description(arguments.name, width), ""])
        for table in departure_tables(arguments.name):
            Console(width=width, highlight=False).print(table, "")
    else:
        print_list(preset_lines(width))
    return 0


def trace_command(arguments: argparse.Namespace) -> int:
    """`fedsel trace`: convert a trace of FLASH or FedScale."""
    from simulation.workbench.traces import convert

    print(convert(arguments.trace, arguments.out, arguments.batch_size))
    return 0


def print_list(lines: Iterable[str]) -> None:
    """Print lines of the right width. On a terminal the headings, which have no indent, are bold."""
    console = Console(highlight=False)
    for line in lines:
        console.print(legible(line), style=None if line.startswith(" ") else "bold", markup=False, soft_wrap=True)
