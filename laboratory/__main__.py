"""Commands of the laboratory, from the root of a checkout: `python -m laboratory claims`, `bench`, and others."""

import sys
from collections.abc import Sequence

from laboratory import pages, protocols
from laboratory.bench import commands as bench
from laboratory.claims import commands as claims
from simulation.workbench.cli import carry_out
from simulation.workbench.command_line.parser import Parser


def parser() -> Parser:
    """Parser of the laboratory's commands."""
    top = Parser(
        prog="python -m laboratory", description="Claims of the papers, benchmarks, generated pages, departures."
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for part in (claims, bench, pages, protocols):
        part.register(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes as those of `fedsel`."""
    return carry_out(parser(), argv, own_code=True)


if __name__ == "__main__":
    sys.exit(main())
