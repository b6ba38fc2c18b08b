"""Too little memory: a run ends with a sentence on the settings, and goes on to the same bits."""

import math
import re

import pytest
import torch
from torch import nn

from fedsel_app.records.files import MachineFault, RunFailed
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import run_with
from simulation.workbench.cli import main
from strategies.round.flower_grid import FlowerGrid
from tests.support.in_process import run_config
from tests.support.in_process_grid import grid_of

pytestmark = pytest.mark.usefixtures("task_identity")

MODEL = f"{__name__}:lacking"
LACK = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
TRAINS, TESTS, TRIES, NOTHING = "trains", "tests", "tries", "nothing"
CLIENT = r"Client \d has too little memory \(CUDA out of memory\. Tried to allocate 2\.00 GiB\.\)"
ADVICE = r"Free memory, lower 'workers', or raise 'client-gpus', so that fewer workers share a GPU\."


class Lacking(nn.Linear):
    """A linear model whose memory does not suffice for what `lacks` says. The trial of a model has two examples."""

    lacks = NOTHING

    def forward(self, x):
        size = len(x)
        doing = TRIES if size == 2 else TRAINS if self.training else TESTS
        if doing == self.lacks:
            raise LACK
        return super().forward(x.flatten(1))


def lacking(shape, classes):
    return Lacking(math.prod(shape), classes)


@pytest.fixture
def lack(monkeypatch):
    """Set what the memory does not suffice for."""
    return lambda doing: monkeypatch.setattr(Lacking, "lacks", doing)


SETTINGS = {"strategy": "random", "model": MODEL, "clients": 4, "cohort": 2, "rounds": 3, "local-steps": 1}


def flags(folder):
    values = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    return ["run", "--engine", "inline", *values, "--set", "checkpoint-every=1", "--out", str(folder)]


def test_an_inline_run_ends_and_goes_on_to_the_same_bits(tmp_path, capsys, lack):
    """The client counted as one that failed: with less memory, the model was another one, and the exit code 0."""
    assert main(flags(tmp_path / "whole")) == 0
    lack(TRAINS)
    capsys.readouterr()
    assert main(flags(tmp_path / "run")) == 1
    [sentence] = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"fedsel: {CLIENT}\. {ADVICE} Then continue with: fedsel run --resume .*", sentence)
    lack(NOTHING)
    assert main(["run", "--engine", "inline", "--resume", str(tmp_path / "run"), "--allow-code", MODEL]) == 0
    whole, run = ((tmp_path / name / "model.npz").read_bytes() for name in ("whole", "run"))
    assert whole == run


@pytest.mark.parametrize("doing", [TRIES, TESTS])
def test_the_trial_and_the_server_name_the_settings(tmp_path, capsys, lack, doing):
    """The trial said that the model's forward must be corrected, and the server's test ended in a traceback."""
    lack(doing)
    assert main(flags(tmp_path / "run")) == 1
    error = capsys.readouterr().err
    who = {TRIES: "The trial of the model", TESTS: "The server"}[doing]
    assert re.fullmatch(rf"fedsel: {who} has too little memory \(CUDA out of memory.*\)\. {ADVICE}\n", error)


@pytest.mark.parametrize("cohort", [1, 4])
def test_in_rays_workers_it_ends_the_run(tmp_path, lack, cohort):
    lack(TRAINS)
    with pytest.raises(MachineFault, match=rf"{CLIENT}\. {ADVICE} Then continue the run with --resume"):
        run_config(tmp_path / "run", resolve(SETTINGS | {"cohort": cohort}), pool=2)


def test_a_deployed_client_has_failed(tmp_path, lack):
    lack(TRAINS)
    config = resolve(SETTINGS | {"out": str(tmp_path / "run")})
    with pytest.raises(RunFailed, match=CLIENT):
        run_with(FlowerGrid(grid_of(config)), config, lambda row: None)
