"""Commands `fedsel report`, `fedsel methods` and `fedsel check`."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fedsel_app.config import ConfigError
from simulation.workbench.command_line.parser import FAILURE, Subparsers, named_once
from simulation.workbench.terminal import whole_table, wide_console

if TYPE_CHECKING:
    from strategies.base import SelectionStrategy
    from strategies.roster import Needs


def register(commands: Subparsers) -> None:
    """Add `report`, `methods` and `check` to the commands of `fedsel`."""
    page = commands.add_parser("report", help="write the report of a comparison or a run into its folder")
    page.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="comparison and run folders")
    page.add_argument("--out", type=Path, metavar="DIR", help="folder for the report of several folders")
    page.add_argument(
        "--metric",
        default="",
        metavar="NAME",
        help="metric in figures and tables: a score of the runs, loss, client_NAME or client_loss (the runs' score)",
    )
    page.add_argument(
        "--figures",
        default="",
        choices=("svg", "pdf", "png"),
        help="write the figures as files too, into report-figures/",
    )
    page.add_argument(
        "--label", action="append", default=[], metavar="METHOD=TEXT", help="show a method under another name"
    )
    page.set_defaults(call=report_command)

    table = commands.add_parser("methods", help="list the selection methods and what they need")
    table.set_defaults(call=methods_command)

    checked = commands.add_parser("check", help="run the tests that every selection method must pass")
    checked.add_argument("strategy", metavar="METHOD", help="name of a method, or package.module:Class")
    checked.set_defaults(call=check_command)


def report_command(arguments: argparse.Namespace) -> int:
    """`fedsel report`: write the page, tables and figures of a comparison or a run."""
    from simulation.workbench.report.drawing import FOLDER
    from simulation.workbench.report.page import write_report

    several = arguments.out is not None or len(arguments.folders) > 1
    if several and arguments.out is None:
        raise ConfigError("Give the report of several folders a folder of its own: --out DIR.")
    page = write_report(
        arguments.out if several else arguments.folders[0],
        sources=arguments.folders if several else (),
        metric=arguments.metric,
        figures=arguments.figures,
        labels=named_once("--label", map(parse_label, arguments.label)),
        console=wide_console(),
    )
    print(f"Report:  {page}")
    print(f"Tables:  {page.with_name('report-*.csv')} and {page.with_name('report-*.tex')}")
    print(f"Rounds:  {page.with_name('rounds.csv')}")
    if arguments.figures:
        print(f"Figures: {page.with_name(FOLDER) / '*'}")
    return 0


def parse_label(text: str) -> tuple[str, str]:
    """Method and label of the form METHOD=TEXT. Raises ConfigError for anything else."""
    method, equals, label = text.partition("=")
    if not (equals and method and label.strip()):
        raise ConfigError(f"A --label is METHOD=TEXT. Got {text!r}.")
    return method, label.strip()


def methods_command(arguments: argparse.Namespace) -> int:
    """`fedsel methods`: list the selection methods, and what each needs."""
    from strategies import STRATEGIES

    table = whole_table("strategy", "paper", "needs", fold=False)
    for row in method_rows(STRATEGIES.values()):
        table.add_row(*row)
    wide_console().print(table)
    return 0


def method_rows(methods: Iterable["type[SelectionStrategy]"]) -> Iterator[tuple[str, str, str]]:
    """Name, paper and needs of each method."""
    for method in methods:
        yield method.name, method.paper, ", ".join(_describe(method.needs(method.Config()))) or "nothing"


def _describe(needs: "Needs") -> Iterator[str]:
    if needs.loss_probe:
        yield "losses before selection"
    if needs.metrics:
        yield f"{', '.join(needs.metrics)} before selection"
    if needs.fit_metrics:
        yield f"{', '.join(needs.fit_metrics)} after training"
    for report in sorted(needs.reports):
        yield f"{report.replace('_', ' ')} of the selected"
    if needs.label_counts:
        yield "label counts (once)"
    if needs.class_biases:
        yield "an output layer with class biases"
    if needs.output_biases:
        yield "an output layer with biases"
    if needs.updates:
        yield "last updates (kept by the server)"
    if needs.links:
        yield "link speeds"


def check_command(arguments: argparse.Namespace) -> int:
    """`fedsel check`: run the contract tests on a selection method, and print one line per test."""
    from strategies import find_strategy
    from strategies.testing import CHECKS, FIRST, check_results

    method = find_strategy(arguments.strategy)
    failed = 0
    for result in check_results(method):
        under = " ".join(f"{method.name}.{key.replace('_', '-')}={value}" for key, value in result.settings.items())
        promised = result.check != "coverage" or method.explores
        sentence = CHECKS[result.check].__doc__ if promised else "The class does not promise this: explores = False."
        outcome = "passed" if result.failure is None else "FAILED"
        print(f"{outcome}  {result.check}{f' ({under})' * bool(under)}: {result.failure or sentence}", flush=True)
        failed += result.failure is not None
        if result.failure is not None and result.check in FIRST:
            print(f"The other checks need {FIRST[result.check]}: fix this first.")
    failures = "1 check" if failed == 1 else f"{failed} checks"
    print(f"{arguments.strategy}: {failures} failed." if failed else f"{arguments.strategy} passes all checks.")
    return FAILURE if failed else 0
