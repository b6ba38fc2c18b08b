"""Commands that write into a folder change or remove no file there but those that fedsel made."""

from contextlib import suppress
from pathlib import Path

import flwr.simulation
import pytest

from clients.state import STATE_FOLDER, ClientHistory, StateStore
from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import MARKER, make_fedsel_folder
from fedsel_app.wiring.configuration import resolve_run_config
from fedsel_app.wiring.server import open_run_folder
from simulation.engines.run_folders import remove_states
from simulation.engines.starter import Starter
from simulation.operations.deployment import deployed_run
from simulation.operations.deployment.flower_cli import DeploymentError, SubmittedRun
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.machines.private_files import held_folder
from simulation.workbench.cli import main
from simulation.workbench.comparison.plan import plan
from simulation.workbench.comparison.run_processes import RunProcesses
from tests.support.in_process import run_in_process
from tests.support.users_files import checkout, tree, written

SMALL = ("--rounds", "1", "--clients", "2", "--cohort", "1", "--set", "local-steps=1", "--set", "workers=1")


def home(folder: Path) -> None:
    for name in (".bashrc", "clients/acme/invoice.txt", "Documents/thesis.tex", "config.json", "model.npz"):
        written(folder / name)


def with_clients(folder: Path) -> None:
    written(folder / "clients" / "client-0" / "round-1.npz")


def with_state_folder(folder: Path) -> None:
    written(folder / STATE_FOLDER / "abc" / "client-0" / "round-1.npz")


def with_processes(folder: Path) -> None:
    written(folder / "processes" / "superlink.db")


def with_symlink(folder: Path) -> None:
    make_fedsel_folder(folder / "elsewhere")
    written(folder / "elsewhere" / "abc" / "client-0" / "round-1.npz")
    (folder / STATE_FOLDER).symlink_to(folder / "elsewhere")


FOLDERS = [checkout, home, with_clients, with_state_folder, with_processes, with_symlink]


def submitted(app, run_config, *_):
    """Stands for Flower: the ServerApp opens the run folder, and fails before its first round."""
    open_run_folder(resolve_run_config(run_config))
    return SubmittedRun(1, "finished:failed", "the run failed")


def fails(*_, **__):
    """Stands for what a command starts."""
    raise RuntimeError("nothing can be started")


STARTS = {
    "run": (flwr.simulation, "run_simulation", fails, ["run", *SMALL]),
    "deploy": (Starter, "start", fails, ["deploy", *SMALL]),
    "compare": (RunProcesses, "work", fails, ["compare", "--strategies", "random", "--seeds", "1", *SMALL]),
}
"""Command -> what it starts, in whose place something fails, and its words."""


@pytest.mark.parametrize("fill", FOLDERS)
@pytest.mark.parametrize("command", STARTS)
def test_a_command_that_fails_removes_nothing(tmp_path, monkeypatch, command, fill):
    *started, words = STARTS[command]
    monkeypatch.setattr(*started)
    folder = tmp_path / "out"
    fill(folder)
    before = tree(folder)
    with suppress(RuntimeError):
        assert main([*words, "--out", str(folder)]) in (1, 2)
    after = tree(folder)
    assert {name: content for name, content in after.items() if name in before} == before
    assert command != "run" or after == before


@pytest.mark.parametrize("command", [["run", "--engine", "inline"], ["deploy"]])
def test_a_resumed_run_leaves_what_lies_beside_its_own_files(tmp_path, monkeypatch, command):
    def start(self, *command):
        raise DeploymentError("no SuperLink")

    monkeypatch.setattr(deployed_run, "submit_to_flower", submitted)
    monkeypatch.setattr(Starter, "start", start)
    folder = tmp_path / "run"
    run_in_process(folder, rounds=2, clients=2, cohort=1, local_steps=1)
    (folder / "summary.json").unlink()
    users = ("notes.txt", "clients/client-0/round-1.npz", "client-0/round-1.npz", "report-mine.csv", "work/thesis.tex")
    for name in users:
        written(folder / name)
    main([*command, "--resume", str(folder)])
    assert [(folder / name).read_text() for name in users] == ["the user's own"] * len(users)


def test_states_are_removed_and_nothing_beside_them(tmp_path):
    folder = tmp_path / STATE_FOLDER
    StateStore(folder).of_run("a1").save(0, 1, {}, ClientHistory())
    written(folder / "a1" / "notes.txt")
    written(folder / "mine" / "client-list.txt")
    (folder / "link").symlink_to(tmp_path)
    remove_states(folder)
    assert sorted(tree(folder)) == [MARKER, "a1", "a1/notes.txt", "link", "mine", "mine/client-list.txt"]


def test_a_second_deployment_in_the_same_folder_is_refused(tmp_path):
    folder = tmp_path / "processes"
    with held_folder(folder, ""):
        written(folder / "superlink.db")
        before = tree(folder)
        with pytest.raises(ConfigError, match="Another deployment is running in"), Deployment(folder, []):
            pass
        assert tree(folder) == before


@pytest.mark.parametrize("name", ["runs/mine.txt", "failures.jsonl", "rounds.jsonl"])
def test_a_comparison_in_a_foreign_folder_is_refused(tmp_path, name):
    written(tmp_path / name)
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match="choose another --out"):
        plan(tmp_path, ["random"], [1], {}, {}).check()
    assert tree(tmp_path) == before
