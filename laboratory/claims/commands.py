"""Commands on claims: `claims` lists, `run` decides and `verify` repeats them, `report` writes the ledger."""

import argparse
import re
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsel_app.config import ConfigError
from simulation.workbench.command_line.parser import FAILURE, Subparsers, folder, positive, settings_given

if TYPE_CHECKING:
    from laboratory.claims.measured import Measured

FEWEST_SEEDS = 5
"""Seeds of a claim that `python -m laboratory claims verify` runs."""
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Time from the command line in seconds: a number followed by s, m or h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 30m or 2h")
    return float(found[1]) * SECONDS[found[2]]


def list_command(arguments: argparse.Namespace) -> int:
    """`python -m laboratory claims`: one line per claim, with its source, scale, cost and verdict."""
    from laboratory.claims.listing import claims_table
    from simulation.workbench.terminal import wide_console

    wide_console().print(claims_table(_measured(arguments)))
    return 0


def run_command(arguments: argparse.Namespace) -> int:
    """`python -m laboratory claims run`: carry out the missing runs of the named claims and rankings, or of all."""
    from rich.console import Console

    from laboratory.claims.claim import Claim
    from laboratory.claims.ranking import Ranking
    from laboratory.claims.runs import run_stages
    from laboratory.claims.study import Study
    from laboratory.claims.tuned import Tuned

    if bool(arguments.names) == arguments.all:
        raise ConfigError(
            "`claims run` takes the names of claims (`python -m laboratory claims` lists them), or --all."
        )
    studies: list[Study]
    if arguments.all:
        studies = [study for study in (*Claim.load(), *Ranking.load(), *Tuned.load()) if not study.left_open]
    else:
        others: list[type[Study]] = [Ranking, Tuned]
        kinds = {name: next((kind for kind in others if name in kind.files()), Claim) for name in arguments.names}
        studies = [study for name, kind in kinds.items() for study in kind.load([name])]
    place = settings_given(arguments.set)
    failures = run_stages(studies, arguments.runs, place, arguments.jobs or 0, arguments.budget, Console())
    for name, reason in failures.items():
        print(f"{name} failed: {reason}")
    print(f"Next: python -m laboratory claims report --runs {arguments.runs} --out DIR")
    return FAILURE if failures else 0


def verify_command(arguments: argparse.Namespace) -> int:
    """`claims verify`: run seeds of the named claims anew, and say whether their verdicts came again."""
    from rich.console import Console

    from laboratory.claims.claim import Claim
    from laboratory.claims.verify import verified_table, verify
    from simulation.workbench.terminal import wide_console

    claims, place = Claim.load(arguments.names), settings_given(arguments.set)
    most = None if arguments.all_seeds else FEWEST_SEEDS
    found, failures = verify(claims, arguments.runs, place, most, arguments.jobs or 0, Console())
    wide_console().print(verified_table(found))
    for name, reason in failures.items():
        print(f"{name} failed: {reason}")
    failed = [one.claim.name for one in found if one.failed]
    others = [one.claim.name for one in found if not (one.again or one.failed)]
    if failed:
        print("A claim whose runs failed is not verified. The same command runs them again.")
    elif not others:
        print("Every verdict came again.")
    if others:
        print(f"Verdicts that did not come again: {', '.join(others)}.")
    return FAILURE if failed or others else 0


def report_command(arguments: argparse.Namespace) -> int:
    """`python -m laboratory claims report`: write the ledger as Markdown, its pictures and its data."""
    from laboratory.claims.claim import Claim
    from laboratory.claims.ledger import write_ledger
    from laboratory.claims.ranking import Ranking
    from laboratory.claims.tuned import Tuned

    studies = Claim.load(), Ranking.load()
    page, *files = write_ledger(arguments.out, *studies, _measured(arguments), Tuned.load(), arguments.data)
    print(f"Ledger: {page}\nPictures and data: {', '.join(map(str, files))}")
    return 0


def add_places(command: argparse.ArgumentParser) -> None:
    """Add the arguments that say where runs are carried out."""
    command.add_argument("--jobs", type=positive, metavar="N", help="runs at the same time (what cores and GPUs allow)")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set where the data are, such as data-path=data"
    )


def _measured(arguments: argparse.Namespace) -> "Measured":
    from laboratory.claims.measured import SHIPPED, read_measured
    from laboratory.claims.runs import FILE

    path = SHIPPED if arguments.runs is None else arguments.runs / FILE
    if not path.is_file():
        raise ConfigError(f"There are no measured runs in {path}: `python -m laboratory claims run` carries them out.")
    return read_measured(path)


def register(commands: Subparsers) -> None:
    """Add `claims` to the commands of `fedsel`."""
    claims = commands.add_parser("claims", help="list the papers' claims, run and decide them")
    where: dict[str, Any] = {
        "dest": "runs",
        "type": folder,
        "metavar": "DIR",
        "help": "folder of the runs (the runs that come with fedsel)",
    }
    claims.add_argument("--runs", **where)
    claims.set_defaults(call=list_command)
    below = claims.add_subparsers(metavar="COMMAND")

    carried = below.add_parser("run", help="carry out the missing runs of claims")
    carried.add_argument("names", nargs="*", metavar="NAME", help="claims and rankings to run")
    carried.add_argument("--all", action="store_true", help="all claims and rankings, except those that are left open")
    carried.add_argument("--out", dest="runs", required=True, type=folder, metavar="DIR", help="folder of the runs")
    carried.add_argument(
        "--budget", type=seconds, default=inf, metavar="TIME", help="stop after this time, such as 30m"
    )
    add_places(carried)
    carried.set_defaults(call=run_command)

    anew = below.add_parser("verify", help="run seeds of claims anew, and say whether their verdicts came again")
    anew.add_argument("names", nargs="+", metavar="NAME", help="claims to verify")
    anew.add_argument("--all-seeds", action="store_true", help=f"all seeds of a claim, not only {FEWEST_SEEDS}")
    anew.add_argument("--out", dest="runs", required=True, type=folder, metavar="DIR", help="folder of the new runs")
    add_places(anew)
    anew.set_defaults(call=verify_command)

    written = below.add_parser("report", help="write the ledger as Markdown, pictures and CSV")
    written.add_argument("--runs", **where)
    written.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder for the ledger")
    written.add_argument("--data", type=Path, metavar="DIR", help="folder for the CSV files (that of the ledger)")
    written.set_defaults(call=report_command)
