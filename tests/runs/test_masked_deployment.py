"""Masked deployments as real processes: the bits of the simulation, also with a client lost between the exchanges."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from tests.support.client_messages import NORMED
from tests.support.programs import PROGRAM, fedsel
from tests.support.rounds import assert_same, rounds

SETTINGS = {"preset": "masked", "rounds": 3, "kept-fraction": 0.1, "links": "simulated"}
MODELS: dict[str, dict[str, str]] = {"plain": {}, "BatchNorm": {"model": NORMED, "calibration-form": "training"}}


def options(clients: int, own: Mapping[str, str]) -> list[str]:
    """Options of the command line for a cohort of all clients, with `own` settings."""
    chosen = {**SETTINGS, **own, "clients": clients, "cohort": clients}
    return ["--preset", str(chosen.pop("preset")), *(f"--set={key}={value}" for key, value in chosen.items())]


def simulated(folder: Path, clients: int, own: Mapping[str, str]) -> Path:
    """The run in one process."""
    config = resolve({**SETTINGS, **own, "clients": clients, "cohort": clients, "out": str(folder)})
    return inline_engine.simulate(config, lambda row: None)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_three_supernodes_with_masks_give_the_bits_of_every_engine(tmp_path: Path, model: str) -> None:
    """One process, and Ray with one and two workers. The module of one's own model is on the path of all processes."""
    own, path = MODELS[model], {"PYTHONPATH": str(Path(__file__).parents[2])}
    expected = simulated(tmp_path / "inline", 3, own)
    for name, command in {
        "deployed": ["deploy"],
        "ray 1": ["run", "--engine", "ray", "--set", "workers=1"],
        "ray 2": ["run", "--engine", "ray", "--set", "workers=2"],
    }.items():
        done = fedsel(*command, *options(3, own), "--out", str(tmp_path / name), environment=path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert_same(tmp_path / name, expected)


@pytest.mark.e2e
@pytest.mark.slow
def test_a_client_that_is_killed_between_the_exchanges_is_in_the_sum(tmp_path: Path) -> None:
    """Client 3 dies after its first update is sent: round 1 has it, the later rounds do without."""
    expected, folder = rounds(simulated(tmp_path / "inline", 4, {})), tmp_path / "deployed"
    command = [PROGRAM, "deploy", *options(4, {}), "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        log, deadline_s = folder / "processes/logs/supernode-3.log", time.monotonic() + 300.0
        sent = ""
        while "Sent successfully" not in sent and time.monotonic() < deadline_s:
            text = log.read_text() if log.exists() else ""
            sent = text.partition("Sending: train message")[2]
            time.sleep(0.002)
        os.kill(supernode(folder, 3), signal.SIGKILL)
        said, _ = running.communicate(timeout=400)
    assert running.returncode == 0, said
    first, *later = rounds(folder)
    assert first["aggregated"] == [0, 1, 2, 3]
    assert (first["loss"], first["accuracy"]) == (expected[0]["loss"], expected[0]["accuracy"])
    assert [row["aggregated"] for row in later] == [[0, 1, 2], [0, 1, 2]]


def supernode(folder: Path, client: int) -> int:
    """Process of a client's SuperNode."""
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode() if entry.name.isdecimal() else ""
        except OSError:
            continue
        if f"partition-id={client} " in line and str(folder) in line:
            return int(entry.name)
    raise AssertionError(f"There is no process of client {client}.")
