"""Commands `fedsel settings` and `fedsel presets`, which print lists."""

import argparse
import textwrap
from shutil import get_terminal_size

from fedsel_app.records.reading import legible
from simulation.workbench.command_line.parser import Subparsers


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
    named = commands.add_parser("presets", help="list the presets, or show the settings of one")
    named.add_argument("name", nargs="?", default="", metavar="NAME", help="preset to show")
    named.set_defaults(call=presets_command)


def settings_command(arguments: argparse.Namespace) -> int:
    """`fedsel settings`: list, by group, the settings that a user sets first, all settings, or those with a word."""
    from simulation.workbench.command_line.listing import first_settings, matching_settings, setting_lines

    width = get_terminal_size().columns
    every = matching_settings(arguments.word)
    groups = every if arguments.all or arguments.word else first_settings()
    print(*map(legible, setting_lines(groups, width, choices=bool(arguments.word))), sep="\n")
    if rest := sum(map(len, every.values())) - sum(map(len, groups.values())):
        more = f"{rest} more: `fedsel settings --all` lists them, `fedsel settings WORD` those that have a word."
        print("", *textwrap.wrap(more, width, break_on_hyphens=False), sep="\n")
    return 0


def presets_command(arguments: argparse.Namespace) -> int:
    """`fedsel presets`: list the presets by paper, or print the settings of one."""
    from fedsel_app.wiring.configuration import resolve
    from simulation.workbench.command_line.listing import preset_description, preset_lines

    width = get_terminal_size().columns
    if arguments.name:
        resolve({"preset": arguments.name})
    lines = preset_description(arguments.name, width) if arguments.name else preset_lines(width)
    print(*map(legible, lines), sep="\n")
    return 0
