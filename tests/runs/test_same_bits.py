"""Every method ends with the same bits, in one process as in any other way to run it."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.deployment.app_folder import app_folder
from simulation.deployment.deployed_run import app_values
from simulation.deployment.flower_cli import submit_to_flower
from simulation.deployment.local_deployment import Deployment
from simulation.engines import inline_engine
from simulation.guard.command_lines import CONNECTION
from strategies import STRATEGIES
from tests.support.engines import AT_ONCE, SPAWN, Settings, deployment_of, engine, inline, ray
from tests.support.programs import fedsel, flower_home
from tests.support.rounds import rounds

SMALL = {"clients": 4, "cohort": 3, "rounds": 3, "local-steps": 3, "device": "cpu", "checkpoint-every": 1}
__all__ = ["engine", "flower_home"]
WAYS = ("Ray 1", "Ray 2", "killed and resumed", "flwr run", "deployment")


def settings_of(method: str) -> Settings:
    quick = {"terraform.min-clients": 2} if method == "terraform" else {}
    return SMALL | AT_ONCE.get(method, {}) | quick | {"strategy": method}


def killed(settings: Settings) -> None:
    """Run until round 2 is on record, and end by SIGKILL."""

    def kill(row: Settings) -> None:
        if row["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    inline_engine.simulate(resolve(settings), kill)


@pytest.fixture(scope="module")
def reference(engine: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a method's run in one process."""
    base = tmp_path_factory.mktemp("inline")

    def folder(method: str) -> Path:
        if not (base / method).exists():
            engine.submit(inline, settings_of(method) | {"out": str(base / method)}).result()
        return base / method

    return folder


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment_of(SMALL["clients"], tmp_path_factory.mktemp("deployment")) as deployment:
        yield deployment


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", STRATEGIES)
def test_inline_and_another_way_give_the_same_bits(way, method, tmp_path, engine, reference, request):
    settings, folder, whole = settings_of(method), tmp_path / "run", reference(method)
    if way.startswith("Ray"):
        engine.submit(ray, settings | {"out": str(folder), "engine": "ray", "workers": int(way[-1])}).result()
    elif way == "killed and resumed":
        process = SPAWN.Process(target=killed, args=(settings | {"out": str(folder)},))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        engine.submit(inline, settings | {"out": str(folder), "resume": True}).result()
    elif way == "flwr run":
        flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
        home = request.getfixturevalue("flower_home")
        done = fedsel("submit", "local", *flags, "--out", str(folder), environment=home)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        config, lines = resolve(settings | {"links": "simulated", "out": str(folder)}), []
        home = request.getfixturevalue("deployment").flwr_home
        result = submit_to_flower(app_folder(), CONNECTION, app_values(config), home, None, lines.append)
        assert result.status == "finished:completed", "".join(lines)
    assert rounds(folder) == rounds(whole)
    for name in ("model.npz", "best-model.npz"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
