"""Commands of `fedsel` that carry out a comparison or a tuning, or watch it."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from fedsel_app.config import RunConfig
from simulation.workbench.command_line.parser import (
    FAILURE,
    Subparsers,
    add_engine,
    add_settings,
    folder,
    overrides,
    parse_grids,
    parse_seeds,
    positive,
)
from simulation.workbench.terminal import print_lines, wide_console


def register(commands: Subparsers) -> None:
    """Add `compare`, `tune` and `watch` to the commands of `fedsel`."""
    several = commands.add_parser("compare", help="compare methods on the same seeds")
    add_strategies(several)
    several.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=V1,V2",
        help="repeat the runs for each value of a setting; several grids give every combination",
    )
    several.set_defaults(call=compare_command)

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
        "--over", required=True, metavar="KEY=LOW..HIGH,KEY=A|B", help="settings to search, with their ranges or values"
    )
    tuned.add_argument("--tuning-seeds", default="101,102", metavar="SEED,...", help="seeds of the trials (101,102)")
    tuned.set_defaults(call=tune_command)

    live = commands.add_parser("watch", help="show the progress of a comparison or a run")
    live.add_argument("folder", type=Path, metavar="DIR", help="folder of a comparison, a tuning or a run")
    live.add_argument(
        "--html", action="store_true", help="show it in a browser, on a page that only this user can open"
    )
    live.set_defaults(call=watch_command)


def add_strategies(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that runs several methods on the same seeds."""
    command.add_argument("--strategies", metavar="NAME,...", help="selection methods (those of the preset)")
    command.add_argument("--seeds", default="1,2,3", metavar="SEED,...", help="seeds of every method (1,2,3)")
    add_settings(command, *(entry.key for entry in RunConfig.entries() if not entry.own))
    add_engine(command)
    command.add_argument("--jobs", type=positive, metavar="N", help="runs at the same time (what cores and GPUs allow)")
    command.add_argument("--out", dest="folder", required=True, type=folder, help="comparison folder")
    command.add_argument("--dry-run", action="store_true", help="check everything, print the runs, and stop")


def compare_command(arguments: argparse.Namespace) -> int:
    """`fedsel compare`: simulate several methods on the same seeds, or print the runs."""
    from simulation.workbench.comparison.plan import default_jobs, gpu_count, plan
    from simulation.workbench.comparison.run_processes import carry_out

    console = wide_console()
    grid = parse_grids(arguments.grid)
    strategies, seeds = strategies_of(arguments), parse_seeds(arguments.seeds)
    comparison = plan(arguments.folder, strategies, seeds, overrides(arguments), grid)
    comparison.check()
    jobs = arguments.jobs or default_jobs([run.config for run in comparison.runs], gpu_count())
    if arguments.dry_run:
        print_lines(console, comparison.lines(jobs))
        return 0
    return show_outcome(comparison.out, carry_out(comparison, jobs, console), console)


def show_outcome(folder: Path, failures: Mapping[str, str], console: Console) -> int:
    """Print the rankings of a comparison, its failed runs with their reasons, and what to do next.

    Returns the exit code. Raises ConfigError if the summary of a run cannot be read.
    """
    from simulation.engines.run_folders import read_summary
    from simulation.workbench.report.answer import print_rankings

    summaries = [read_summary(path.parent) for path in folder.glob("runs/*/summary.json")]
    if summaries:
        print_rankings(console, folder)
    lines = [f"{name} failed: {reason}" for name, reason in failures.items()]
    print_lines(console, [*lines, f"Next: fedsel report {folder}"])
    return FAILURE if failures else 0


def strategies_of(arguments: argparse.Namespace) -> list[str]:
    """Strategies of a comparison, from --strategies or the preset."""
    from simulation.workbench.comparison.plan import preset_strategies

    if arguments.strategies:
        return [name.strip() for name in arguments.strategies.split(",")]
    return preset_strategies(arguments.preset or "")


def watch_command(arguments: argparse.Namespace) -> int:
    """`fedsel watch`: show the progress of a comparison, a tuning or a run until it ends."""
    if arguments.html:
        from simulation.workbench.report.live import serve

        serve(arguments.folder, wide_console())
        return 0
    from simulation.workbench.comparison.watch import follow

    follow(arguments.folder, wide_console())
    return 0


def tune_command(arguments: argparse.Namespace) -> int:
    """`fedsel tune`: tune every method with the same number of trials, and compare; or print the plan."""
    from simulation.workbench.comparison.plan import default_jobs, gpu_count, plan
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
