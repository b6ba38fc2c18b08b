"""Runs in one process end with the bits of the table; Ray and a deployment end with those of one process."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import app_values
from simulation.operations.deployment.flower_cli import submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard.command_lines import CONNECTION
from tests.bits.cases import BASE, CASES, METHODS, OWN_APPS
from tests.bits.table import COMMAND, Bits, Table, case_bits, differences, folder_bits, machine, read_table, run_bits
from tests.support.engines import deployment_of, engine, ray

__all__ = ["engine"]
KEPT = read_table()
NAMES = [*CASES, *OWN_APPS]
SLOW = ("rule/", "participation/isp around")
CHANGED = (
    "{name} ends with other {others} than the table. The table is of {kept}, and this machine is {here}. If the change "
    f"is meant to move them, write the table anew: {COMMAND}"
)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment_of(BASE["clients"], tmp_path_factory.mktemp("deployment")) as deployment:
        yield deployment


def test_the_table_has_every_case_and_no_other():
    assert set(KEPT.cases) == set(NAMES), f"Write the table anew: {COMMAND}"


def test_a_new_field_of_a_record_moves_nothing(tmp_path: Path) -> None:
    model = {"weight": np.ones(3, np.float32)}
    row: dict[str, object] = {"round": 1, "selected": [2, 0], "failures": [], "loss": 0.5}

    def found(changed: dict[str, object], model: dict[str, np.ndarray] = model) -> Bits:
        (tmp_path / "rounds.jsonl").write_text(json.dumps(row | changed) + "\n", encoding="utf-8")
        return run_bits(tmp_path, model)

    before = found({})
    assert found({"a_new_field": 1, "wall_s": 2.0}) == before
    for part, other in {
        "choices": found({"selected": [0, 2]}),
        "numbers": found({"loss": 0.25}),
        "model": found({}, {"weight": np.ones(3)}),
    }.items():
        assert other == before._replace(**{part: getattr(other, part)}) != before


def test_on_another_machine_only_choices_are_compared() -> None:
    kept, found = Bits("a", "b", "c"), Bits("A", "B", "C")
    here, there = machine(), machine() | {"torch's CPU capability": "another"}
    assert differences("case", found, Table(here, {"case": kept})) == ["choices", "numbers", "model"]
    assert differences("case", found, Table(there, {"case": kept})) == ["choices"]
    assert differences("case", kept, Table(here, {"case": kept})) == []
    assert differences("case", kept, Table(here, {})) == ["choices", "numbers", "model"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name.startswith(SLOW) else []) for name in NAMES]
)
def test_a_run_in_one_process(name: str, tmp_path: Path) -> None:
    others = differences(name, case_bits(name, tmp_path), KEPT)
    assert not others, CHANGED.format(name=name, others=", ".join(others), kept=KEPT.machine, here=machine())


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("name", METHODS)
def test_two_workers_of_ray(name: str, tmp_path: Path, engine: ProcessPoolExecutor) -> None:
    engine.submit(ray, CASES[name] | {"out": str(tmp_path / "ray"), "engine": "ray", "workers": 2}).result()
    assert folder_bits(tmp_path / "ray") == case_bits(name, tmp_path)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("name", METHODS)
def test_a_deployment(name: str, tmp_path: Path, deployment: Deployment) -> None:
    config, lines = resolve(CASES[name] | {"links": "simulated", "out": str(tmp_path / "deployed")}), []
    result = submit_to_flower(app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, lines.append)
    assert result.completed, "".join(lines)
    assert folder_bits(tmp_path / "deployed") == case_bits(name, tmp_path)
