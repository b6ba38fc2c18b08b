"""Command `fedsel tune`: the same number of trials for every method, then a comparison on other seeds."""

import argparse

from simulation.workbench.command_line.arguments import Subparsers, overrides, parse_seeds, positive
from simulation.workbench.comparison.commands import add_strategies, show_outcome, strategies_of
from simulation.workbench.terminal import wide_console


def register(commands: Subparsers) -> None:
    """Add `tune` to the commands of `fedsel`."""
    tuned = commands.add_parser("tune", help="search for the best settings of each method, then compare the methods")
    add_strategies(tuned)
    tuned.add_argument(
        "--trials",
        type=positive,
        default=10,
        metavar="N",
        help="trials for each method, the first with the default settings (10)",
    )
    tuned.add_argument(
        "--over",
        required=True,
        metavar="KEY=LOW..HIGH,KEY=A|B",
        help="settings to search, with their ranges or values",
    )
    tuned.add_argument("--tuning-seeds", default="101,102", metavar="SEED,...", help="seeds of the trials (101,102)")
    tuned.set_defaults(call=tune_command)


def tune_command(arguments: argparse.Namespace) -> int:
    """`fedsel tune`: tune every method with the same number of trials, and compare; or print the plan."""
    from simulation.workbench.comparison.placement import default_jobs, gpu_count
    from simulation.workbench.comparison.plan import plan
    from simulation.workbench.tuning.plan import plan_tuning
    from simulation.workbench.tuning.tune import run_tuning

    seeds, tuning_seeds = parse_seeds(arguments.seeds), parse_seeds(arguments.tuning_seeds)
    strategies = strategies_of(arguments)
    base = plan(arguments.folder, strategies, seeds, overrides(arguments), {})
    tuning = plan_tuning(base, arguments.trials, tuning_seeds, arguments.over)
    tuning.check()
    jobs = arguments.jobs or default_jobs([run.config for run in base.runs], gpu_count())
    if arguments.dry_run:
        print(*tuning.lines(jobs), sep="\n")
        return 0
    console = wide_console()
    return show_outcome(tuning.out, run_tuning(tuning, jobs, console), console)
