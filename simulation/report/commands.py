"""Commands of `fedsel` on the selection methods: what each costs, and whether it keeps its contract."""

import argparse

from fedsel_app.config.arguments import Subparsers
from simulation.terminal import whole_table, wide_console

FAILURE = 1
"""Exit code where a check failed."""


def register(commands: Subparsers) -> None:
    """Add `methods` and `check` to the commands of `fedsel`."""
    table = commands.add_parser("methods", help="the selection methods and what each costs")
    table.add_argument("--size", type=int, default=2_781_514, help="model parameters N")
    table.add_argument("--clients", type=int, default=100, help="clients K")
    table.add_argument("--cohort", type=int, default=10, help="clients selected a round M")
    table.set_defaults(call=methods)

    checked = commands.add_parser("check", help="what a selection method promises, tried out")
    checked.add_argument("strategy", metavar="METHOD", help="its name, or package.module:Class")
    checked.set_defaults(call=check)


def methods(arguments: argparse.Namespace) -> int:
    """`fedsel methods`: list the selection methods and their costs in a round."""
    from simulation.report.method_table import Scale, method_rows

    scale = Scale(arguments.size, arguments.clients, arguments.cohort)
    title = f"Costs in round 1 at N = {scale.size:,}, K = {scale.clients}, M = {scale.cohort}"
    table = whole_table("strategy", "paper", "needs", "MB", "client s", fold=False, title=title)
    for row in method_rows(scale):
        table.add_row(*row)
    wide_console().print(table)
    return 0


def check(arguments: argparse.Namespace) -> int:
    """`fedsel check`: put a selection method through the contract suite, a line for each check that it takes."""
    from strategies import find_strategy
    from strategies.testing import CHECKS, check_results

    method = find_strategy(arguments.strategy)
    failed = 0
    for result in check_results(method):
        under = " ".join(f"{method.name}.{key.replace('_', '-')}={value}" for key, value in result.settings.items())
        promised = result.check != "coverage" or method.explores
        sentence = CHECKS[result.check].__doc__ if promised else "Not promised: the class says explores = False."
        outcome = "passed" if result.failure is None else "FAILED"
        print(f"{outcome}  {result.check}{f' ({under})' * bool(under)}: {result.failure or sentence}", flush=True)
        failed += result.failure is not None
    print(f"{arguments.strategy}: {failed} checks failed." if failed else f"{arguments.strategy} keeps the contract.")
    return FAILURE if failed else 0
