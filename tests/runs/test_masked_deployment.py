"""A masked deployment as real processes has the bits of the simulation."""

from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from tests.support.programs import fedsel
from tests.support.rounds import assert_same

SETTINGS = {"preset": "masked", "rounds": 3, "kept-fraction": 0.1, "links": "simulated"}


def options(clients: int) -> list[str]:
    """Options of the command line for a cohort of all clients."""
    chosen = {**SETTINGS, "clients": clients, "cohort": clients}
    return ["--preset", str(chosen.pop("preset")), *(f"--set={key}={value}" for key, value in chosen.items())]


def simulated(folder: Path, clients: int) -> Path:
    """The run in one process."""
    config = resolve(SETTINGS | {"clients": clients, "cohort": clients, "out": str(folder)})
    return inline_engine.simulate(config, lambda row: None)


@pytest.mark.e2e
@pytest.mark.slow
def test_three_supernodes_with_masks_give_the_bits_of_every_engine(tmp_path: Path) -> None:
    """One process, and Ray with one and two workers."""
    expected = simulated(tmp_path / "inline", 3)
    for name, command in {
        "deployed": ["deploy"],
        "ray 1": ["run", "--engine", "ray", "--set", "workers=1"],
        "ray 2": ["run", "--engine", "ray", "--set", "workers=2"],
    }.items():
        done = fedsel(*command, *options(3), "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stdout + done.stderr
        assert_same(tmp_path / name, expected)
