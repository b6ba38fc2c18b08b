"""The commands a user types, in processes of their own."""

import io
import json
import signal
import subprocess
import time
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.flower_cli import environment, tool
from simulation.workbench.cli import main
from tests.support.processes import FLEET_STARTS, mentioning
from tests.support.programs import PROGRAM, SMALL, fedsel, flower_home
from tests.support.rounds import assert_same, rounds
from tests.support.users_files import checkout, tree

__all__ = ["flower_home"]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run in one process, in a folder that holds a checkout of the user's."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    checkout(folder)
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["run", *SMALL, "--out", str(folder)]) == 0
    assert printed.getvalue().startswith("Method: hetero-select\nEngine: ")
    assert "\nEngine: inline, as " in printed.getvalue()
    assert f"\nNext: fedsel report {folder}\n" in printed.getvalue()
    return folder


@pytest.mark.e2e
def test_a_run_leaves_its_records_and_what_was_there(simulated: Path, tmp_path: Path) -> None:
    checkout(tmp_path)
    theirs, found = tree(tmp_path), tree(simulated)
    assert {name: found[name] for name in theirs} == theirs
    names = {name for name in found.keys() - theirs.keys() if "/" not in name}
    models = {"model.npz", "best-model.npz"}
    assert names == {"config.json", "data.json", "rounds.jsonl", "clients.jsonl", "summary.json"} | models
    summary = json.loads((simulated / "summary.json").read_text())
    assert summary["rounds"] == 5
    assert summary["client_updates"] == 10
    assert summary["final_accuracy"] > 0.8


@pytest.mark.e2e
def test_ray_actors_give_the_bits_of_one_process(simulated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ray"
    done = fedsel("run", *SMALL, "--set", "workers=1", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert "\nEngine: ray, as 'workers' is set" in done.stdout
    assert "terminat" not in done.stdout + done.stderr
    assert_same(folder, simulated)


@pytest.mark.e2e
@pytest.mark.slow
def test_flwr_run_as_typed_simulates_twenty_clients_on_any_number_of_nodes(
    tmp_path: Path, flower_home: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's default is two nodes. Without the dependencies, which Flower would install first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    expected = fedsel("run", "--rounds", "3", "--out", str(tmp_path / "inline"))
    assert expected.returncode == 0, expected.stderr
    for nodes in ("", "num-supernodes=5 client-resources-num-cpus=1", "num-supernodes=23 client-resources-num-cpus=1"):
        folder = tmp_path / f"run {nodes[:17]}"
        command = [tool("flwr"), "run", ".", "--stream", "--run-config", f"rounds=3 out='{folder}'"]
        done = subprocess.run(
            command + (["--federation-config", nodes] if nodes else []),
            cwd=app_folder(), env=environment(None) | flower_home, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "round 3 of 3: accuracy" in done.stdout + done.stderr
        assert_same(folder, tmp_path / "inline")


@pytest.mark.e2e
def test_deployed_processes_give_the_bits_of_the_simulation(tmp_path: Path) -> None:
    """Two clients are enough for rounds in which both train and rounds in which one of them is selected."""
    settings = {"clients": 2, "cohort": 2, "rounds": 3, "participation": "adafl-econom"}
    settings |= {"growth-first": 1, "growth-every": 1.0, "growth-warmup": 2}
    config = resolve(settings | {"links": "simulated", "out": str(tmp_path / "simulated")})
    simulated = inline_engine.simulate(config, lambda row: None)
    assert {len(row["selected"]) for row in rounds(simulated)} == {1, 2}
    folder = tmp_path / "deployed"
    shared = [f"--set={key}={value}" for key, value in settings.items()]
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["deploy", *shared, "--set", "links=simulated", "--out", str(folder)]) == 0
    assert_same(folder, simulated)
    assert FLEET_STARTS in (folder / "processes/logs/superlink.log").read_text()
    assert not (folder / "processes/tmp").exists()
    logs = [path.read_text() for path in (folder / "processes/logs").iterdir()]
    assert len(logs) == 3
    for text in (printed.getvalue(), *logs):
        assert not any(words in text for words in ("\x1b", "PullMessages", "pull-pending-tasks"))
    assert not mentioning(folder)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["run", "run --engine ray", "deploy"])
def test_ctrl_c_and_sigterm_end_everything(command: str, number: int, code: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = [PROGRAM, *command.split(), "--clients", "2", "--cohort", "1", "--rounds", "1000", "--out", str(folder)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 200
        while not (folder / "rounds.jsonl").exists() or not (folder / "rounds.jsonl").read_text():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.5)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == code
    if command != "deploy":
        assert f"Interrupted; the rounds so far are kept. Go on with: fedsel run --resume {folder}" in said.decode()
    time.sleep(5)
    assert not mentioning(folder)
