"""Command line: `fedsel` and its subcommands. Each returns the exit code."""

import argparse
import os
import select
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fedsel_app.config import ConfigError, RunConfig, Value
from fedsel_app.config.plugins import named_by
from fedsel_app.imports import set_defaults
from fedsel_app.records.files import RunFailed
from fedsel_app.records.reading import legible
from simulation.engines.this_process import exit_on_signals, interrupted, uncollected_imports
from simulation.operations.deployment.flower_cli import DeploymentError
from simulation.workbench.command_line import catalogue, deployment
from simulation.workbench.command_line.parser import (
    FAILURE,
    USAGE_ERROR,
    Parser,
    Subparsers,
    add_allowed_code,
    add_engine,
    add_settings,
    folder,
    overrides,
)
from simulation.workbench.comparison import commands as comparison
from simulation.workbench.report import commands as report_commands

if TYPE_CHECKING:
    from fedsel_app.wiring.configuration import AppConfig

set_defaults()


def configuration(arguments: argparse.Namespace, **defaults: Value) -> "AppConfig":
    """Configuration of a new run or, with --resume, of the run in that folder."""
    from fedsel_app.wiring.configuration import resolve
    from simulation.engines.idle_settings import refuse_idle

    values = overrides(arguments)
    if not arguments.resume:
        config = resolve(defaults | values)
        refuse_idle(values, [config.values()], str(values.get("preset", "")))
        return config
    from simulation.engines.run_folders import resolve_resumed

    return resolve_resumed(Path(arguments.resume), values)


def run_command(arguments: argparse.Namespace) -> int:
    """`fedsel run`: simulate one run, or print its configuration and plan."""
    with uncollected_imports():
        from fedsel_app.data.dataset import load
        from fedsel_app.wiring.named_files import run_folder
        from simulation.engines.choice import choose
        from simulation.engines.run_folders import completed_rounds
        from simulation.operations.deployment.leaks import leaks
        from simulation.workbench.report.one_run import RunDisplay, print_plan

        if not arguments.dry_run:
            from simulation.workbench.report.one_run import report_run

    config = configuration(arguments)
    console = Console()
    if arguments.dry_run:
        print_plan(config, console)
        return 0
    choice = choose(config)
    data = load(config.data, config.run.seed)
    lines = [f"Method: {config.run.strategy}", f"Engine: {choice}", f"Data: {data.description}"]
    lines += [f"Warning: {leak}" for leak in (leaks(data) if data.table else [])]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    completed = completed_rounds(run_folder(config)) if config.records.resume else 0
    display = RunDisplay(config.run.rounds, console, completed, measured=config.network.links == "measured")
    folder = choice.simulate(config, display.show)
    report_run(folder, console)
    return 0


def data_command(arguments: argparse.Namespace) -> int:
    """`fedsel data`: describe the data of a run: columns, classes, owners, and what each client has."""
    from fedsel_app.wiring.configuration import resolve
    from simulation.workbench.report.data_description import describe
    from simulation.workbench.terminal import wide_console

    console = wide_console()
    any_run: dict[str, Value] = {"strategy": "random", "cohort": 1}
    for part in describe(resolve(any_run | overrides(arguments))):
        console.print(part, markup=False, highlight=False, soft_wrap=isinstance(part, str))
    return 0


def model_command(arguments: argparse.Namespace) -> int:
    """`fedsel model`: write the last or the best model of a run, or that of a client, as a state dict."""
    from fedsel_app.models.state_files import write_state
    from simulation.workbench.python_interface.runs import load_run

    result = load_run(arguments.run)
    if arguments.client is not None:
        trained = result.client_model(arguments.client, arguments.states)
    else:
        trained = result.best_model if arguments.best else result.model
    write_state(arguments.file, trained)
    print(f"Model: {arguments.file}")
    return 0


def deploy_command(arguments: argparse.Namespace) -> int:
    """`fedsel deploy`: run with real server and client processes on this machine."""
    from simulation.operations.deployment.deployed_run import run_deployed
    from simulation.workbench.report.one_run import report_run

    return run_deployed(configuration(arguments, links="measured"), Console(), report_run)


def submit_command(arguments: argparse.Namespace) -> int:
    """`fedsel submit`: submit a run to a federation, and wait for its end."""
    from simulation.operations.deployment.submission import resumed, run_defaults, submit_to_federation

    if arguments.resume:
        config = resumed(arguments.admin, arguments.resume, overrides(arguments))
    else:
        config = configuration(arguments, **run_defaults(arguments.admin))
    return submit_to_federation(arguments.admin, config, Console())


@cache
def parser() -> Parser:
    """Parser of all subcommands and their arguments."""
    top = Parser(prog="fedsel", description="Federated learning on Flower: simulate, compare, deploy.")
    top.add_argument("--version", action="version", version=f"fedsel {version('fedsel')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND", dest="command", help=argparse.SUPPRESS)
    register_runs(commands)
    comparison.register(commands)
    report_commands.register(commands)
    deployment.register(commands)
    catalogue.register(commands)
    top.show_examples("fedsel")
    top.usage = "fedsel COMMAND ..."
    top.show_groups({action.dest: action.help or "" for action in commands._choices_actions})
    for name, command in commands.choices.items():
        command.show_examples(name)
    return top


def register_runs(commands: Subparsers) -> None:
    """Add the commands on one run: `run`, `deploy`, `submit`, `data` and `model`."""
    one = commands.add_parser("run", help="simulate one run on this machine")
    add_run_settings(one)
    add_engine(one)
    one.add_argument("--dry-run", action="store_true", help="print the configuration and the plan, and stop")
    one.set_defaults(call=run_command)

    real = commands.add_parser("deploy", help="run with real server and client processes on this machine")
    add_run_settings(real)
    real.set_defaults(call=deploy_command)

    sent = commands.add_parser("submit", help="run on a federation, and wait until the run ends")
    add_run_settings(sent)
    sent.add_argument("admin", type=folder, metavar="ADMIN", help="the admin's folder of the federation")
    sent.set_defaults(call=submit_command)

    described = commands.add_parser("data", help="describe the data: columns, classes, owners, clients")
    add_settings(described, "clients", "seed")
    described.set_defaults(call=data_command)

    written = commands.add_parser("model", help="write the model of a finished run as a state dict")
    written.add_argument("run", type=folder, metavar="RUN", help="run folder")
    which = written.add_mutually_exclusive_group()
    which.add_argument("--best", action="store_true", help="the model of the best round, instead of the last")
    which.add_argument("--client", type=int, metavar="ID", help="the last model, with this client's own layers")
    written.add_argument("--states", type=folder, metavar="DIR", help="this client's 'state-dir' (the run folder)")
    written.add_argument("--out", dest="file", required=True, type=folder, metavar="FILE", help="a .safetensors file")
    add_allowed_code(written)
    written.set_defaults(call=model_command)


def add_run_settings(command: argparse.ArgumentParser) -> None:
    """Add the arguments that start or resume one run."""
    add_settings(command, *RunConfig.keys())
    command.add_argument("--resume", metavar="DIR", help="continue the interrupted run in this folder")
    command.add_argument("--out", type=lambda text: str(Path(text).absolute()), help="run folder")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 failed, 2 wrong settings, 130, 143 or 129 interrupted (by a signal)."""
    return carry_out(parser(), argv)


def carry_out(commands: Parser, argv: Sequence[str] | None, *, own_code: bool = False) -> int:
    """Run the command of `commands` that `argv` names; None: the words of this process. Exit codes as `main`.

    Unless the commands have settings with `own_code`, all code of users must be named in `argv`.
    """
    words = sys.argv[1:] if argv is None else argv
    arguments, unread = commands.parse_known_args(words)
    try:
        if unread:
            raise ConfigError(
                f"`{commands.prog} {arguments.command}` cannot read {unread[0]!r}: --help lists its options, and a "
                "setting is given as --set KEY=VALUE."
            )
        with nullcontext() if own_code else named_by(words), exit_on_signals():
            code: int = arguments.call(arguments)
        sys.stdout.flush()
    except ConfigError as error:
        print(f"fedsel: {legible(str(error))}", file=sys.stderr)
        return USAGE_ERROR
    except (OSError, DeploymentError, RunFailed) as error:
        if not (isinstance(error, BrokenPipeError) and output_is_cut()):
            print(f"fedsel: {legible(str(error))}", file=sys.stderr)
        return FAILURE
    except (KeyboardInterrupt, SystemExit) as ended:
        if (stopped := interrupted(ended)) is None:
            raise
        code = stopped
        going_on = "; repeat the command to continue from here" if arguments.command in ("compare", "tune") else ""
        print(f"fedsel: interrupted{going_on}", file=sys.stderr)
    return code


def output_is_cut() -> bool:
    """True if the reader of the output has gone, as after `| head`. The rest of the output is then discarded."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    if is_cut := bool(output.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return is_cut


if __name__ == "__main__":
    sys.exit(main())
