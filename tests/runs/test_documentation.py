"""Documentation: every command of README.md and docs/ is checked, in this process.

Settings, files and exit codes are those of the real commands. Runs of `CARRIED_OUT`, runs whose folder a later command
reads, and runs of a page's own code are carried out: one round of few clients, with blank pictures. The plans of the
others are printed. Commands of Flower and make are compared with what those programs know. The tests of the
laboratory check its commands.
"""

import importlib
import io
import itertools
import re
import runpy
from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from flwr.cli.app import typer_click_object
from flwr.common.config import parse_config_args

from fedsel_app.wiring.configuration import known_defaults, resolve_run_config
from simulation.operations.guard.transport import FLEET_OVER_GRPC
from simulation.workbench.cli import main
from simulation.workbench.cli import parser as commands_of_fedsel
from strategies.roster import Roster, RoundInfo
from strategies.testing import check_method
from tests.faults.__main__ import PROGRAMS
from tests.support.contexts import context_of
from tests.support.documentation import PAGES, ROOT, Command, commands, written_files
from tests.support.in_process import run_in_process
from tests.support.scaled_down import arrays, folder

__all__ = ["folder"]
CARRIED_OUT = ("README.md", "docs/running.md", "docs/tutorial.md")
FLOWERS = {
    "flower-superlink": ("flwr.superlink.cli.flower_superlink", "_parse_args_run_superlink"),
    "flower-supernode": ("flwr.supernode.cli.flower_supernode", "_parse_args_run_supernode"),
}
"""Flower's programs, and where each makes the parser of its arguments; the pages show those of `FLEET_OVER_GRPC`."""


def run_fedsel(command: Command, folder: Path) -> None:
    """Run one `fedsel` command as the shell in `folder` would; the root directory lies in it as well."""
    words = [re.sub(r"(^|=)/", rf"\1{folder}/", word) for word in command.words[1:]]
    for word in words:
        path = folder / word.removeprefix("data-path=")
        if word.endswith(".npz") and not path.exists():
            path.parent.mkdir(exist_ok=True)
            np.savez(path, **arrays((32, 32, 3), 10))
    if words[0] == "report":
        for seed, place in enumerate(itertools.takewhile(lambda word: not word.startswith("--"), words[1:])):
            if not (folder / place).exists():
                assert main(["run", "--strategy", "random", "--seed", str(seed), "--out", place]) == 0
    if words[0] == "submit" and not (folder / words[1]).exists():
        commands_of_fedsel().parse_args(words)  # the page provisions no federation before
        return
    if "--resume" in words:
        # As a run that was killed before its first checkpoint leaves its folder.
        run = folder / words[words.index("--resume") + 1]
        if words[0] == "submit":
            [submitted] = (folder / words[1] / "submitted").iterdir()
            run = folder / "runs" / submitted.stem
            submitted.rename(submitted.with_name(f"{words[-1]}.json"))
        (run / "summary.json").unlink()
    try:
        code = main(words)
    except SystemExit as refused:
        code = refused.code
    assert code == 0, str(command)


def planned(command: Command, page: str, later: Sequence[Command]) -> Command:
    """The command; with `--dry-run`, and the first seed alone, if its runs are not to be carried out."""
    words = command.words
    if page in CARRIED_OUT or words[1] not in ("run", "compare", "tune") or {"--dry-run", "--resume"} & {*words}:
        return command
    modules = [name.removesuffix(".py") for name in written_files(PAGES[page]) if name.endswith(".py")]
    read_later = "--out" in words and any(words[words.index("--out") + 1] in other.words for other in later)
    if read_later or any(re.search(rf"\b{module}:", str(command)) for module in modules):
        return command
    first_seed = (each.split(",")[0] if before == "--seeds" else each for before, each in pairwise(("", *words)))
    return Command((*first_seed, "--dry-run"), command.variables)


def only_named(command: Command) -> bool:
    """True for a command that a sentence names without its arguments, as `fedsel start FOLDER`."""
    return len(command.words) == 2 or command.words[-1].isupper()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_right(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_page = commands(PAGES[page])
    for number, command in enumerate(of_page, start=1):
        program, *arguments = command.words
        if program == "fedsel" and only_named(command):
            with pytest.raises(SystemExit, match=r"^0$"):
                main([arguments[0], *(["--help"] if arguments[0] != "--help" else [])])
        elif program == "fedsel" and "--html" in arguments:
            commands_of_fedsel().parse_args(arguments)  # it serves a page until the runs have ended
        elif program == "fedsel":
            run_fedsel(planned(command, page, of_page[number:]), folder)
        elif program == "python" and (folder / arguments[0]).is_file():
            if "datasets" in (folder / arguments[0]).read_text(encoding="utf-8"):
                pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
            with redirect_stderr(io.StringIO()):
                runpy.run_path(str(folder / arguments[0]))
        elif program == "python" and arguments[0] == "-m":
            assert find_spec(arguments[1]), str(command)
            if arguments[1:3] == ["tests.faults", "--programs"]:
                assert {*arguments[3].split(",")} <= PROGRAMS.keys(), str(command)
        elif program == "python" and (ROOT / arguments[0]).is_file():
            continue  # a script of the checkout, which measures for minutes
        elif program == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in arguments), str(command)
        elif (program, arguments[0]) == ("flwr", "run"):
            check_flwr_run(arguments[1:])
        elif program in FLOWERS and FLEET_OVER_GRPC:
            parser = getattr(importlib.import_module(FLOWERS[program][0]), FLOWERS[program][1])()
            parser.parse_args(arguments)
        else:
            assert page in ("docs/deployment.md", "docs/security.md"), f"No test checks `{command}` of {page}."


def check_flwr_run(arguments: list[str]) -> None:
    """Flower takes the options, and the app the settings."""
    options = typer_click_object.commands["run"].make_context("run", arguments).params
    resolve_run_config(known_defaults() | parse_config_args(options["run_config_overrides"]))
    parse_config_args(options["federation_config_overrides"])


def test_the_methods_of_the_page_do_what_they_say(folder: Path) -> None:
    settings = {"clients": 8, "cohort": 2}
    _, rows = run_in_process(folder / "waiting", rounds=4, strategy="waiting:LongestWaiting", **settings)
    assert sorted(client for row in rows for client in row["selected"]) == list(range(8))
    importlib.import_module("test_waiting").test_longest_waiting()
    own = {"strategy": "flad:FLAD", "flad.most-epochs": 3, "local_steps": 0, "local_epochs": 1, "holdout_fraction": 0.2}
    _, [row] = run_in_process(folder / "flad", rounds=1, **settings, **own)
    assert len(row["probe_metrics"]["f1-macro"]) == len(row["local_steps"]) > 0
    flad = importlib.import_module("flad").FLAD
    check_method(flad)
    # The mean is 0.5. Behind the best of those below: 0.3, 0.1, 0, as shares of 0.3 of four further epochs.
    method, roster = flad(context_of(flad.Config(), clients=4)), Roster(4, ["f1-macro"])
    roster.available[:], roster.metric("f1-macro")[:] = True, [0.2, 0.4, 0.9, 0.5]
    chosen = method.select(roster, RoundInfo(1, 2), 4, np.random.default_rng(0))
    assert (chosen.clients.tolist(), chosen.local_epochs.tolist()) == ([0, 1, 3], [5, 2, 1])
