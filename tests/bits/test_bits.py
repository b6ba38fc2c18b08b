"""Runs end with the bits of the table: every case in one process, and every method by Ray and in a deployment too."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.deployment.app_folder import app_folder
from simulation.deployment.deployed_run import app_values
from simulation.deployment.flower_cli import submit_to_flower
from simulation.deployment.local_deployment import Deployment
from simulation.guard.command_lines import CONNECTION
from tests.bits.cases import BASE, CASES, METHODS, OWN_APPS
from tests.bits.table import COMMAND, case_bits, folder_bits, machine, processor, read_table
from tests.support.engines import deployment_of, engine, ray

__all__ = ["engine"]
KEPT = read_table()
NAMES = [*CASES, *OWN_APPS]
SLOW = ("rule/", "participation/isp around")
CHANGED = (
    "{name} does not end with the bits of the table, which was written on {of} (this is {here}). If the change is "
    f"meant to move them, write the table anew: {COMMAND}"
)


@pytest.fixture(autouse=True, scope="module")
def same_numbers() -> None:
    """Skip where the numerical libraries give other numbers than where the table was written."""
    here = machine()
    if others := [name for name in here if here[name] != KEPT["machine"].get(name)]:
        pytest.skip(
            f"The table of bits is of another machine: {', '.join(others)} differ. To compare two commits here, write "
            f"it at the first of them: {COMMAND}"
        )


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment_of(BASE["clients"], tmp_path_factory.mktemp("deployment")) as deployment:
        yield deployment


def check(name: str, found: dict[str, str]) -> None:
    """The hashes are those of the table."""
    assert found == KEPT["cases"][name], CHANGED.format(name=name, of=KEPT["processor"], here=processor())


def test_the_table_has_every_case_and_no_other():
    assert set(KEPT["cases"]) == set(NAMES), f"Write the table anew: {COMMAND}"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else []) for name in NAMES]
)
def test_a_run_in_one_process(name: str, tmp_path: Path) -> None:
    check(name, case_bits(name, tmp_path))


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("name", METHODS)
def test_two_workers_of_ray(name: str, tmp_path: Path, engine: ProcessPoolExecutor) -> None:
    engine.submit(ray, CASES[name] | {"out": str(tmp_path / "run"), "engine": "ray", "workers": 2}).result()
    check(name, folder_bits(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("name", METHODS)
def test_a_deployment(name: str, tmp_path: Path, deployment: Deployment) -> None:
    config, lines = resolve(CASES[name] | {"links": "simulated", "out": str(tmp_path / "run")}), []
    result = submit_to_flower(app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, lines.append)
    assert result.completed, "".join(lines)
    check(name, folder_bits(tmp_path / "run"))
