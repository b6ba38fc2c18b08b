"""Runs from Python: the same bits as from the command line, and an unchanged process afterwards."""

import logging

import numpy as np
import pytest
import torch

from fedsel_app import compare, load_run, run
from fedsel_app.config import ConfigError
from fedsel_app.records.run_folder import read_rounds
from tests.support.in_process import run_in_process

SMALL = {"rounds": 4, "clients": 5, "cohort": 2, "checkpoint_every": 2, "local_steps": 5}


def bits(folder):
    """The final model, and the rounds without their wall times."""
    rounds = [row | {"wall_s": 0} for row in read_rounds(folder)]
    with np.load(folder / "model.npz", allow_pickle=False) as model:
        return model["parameters"].tobytes(), rounds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a run that the inline engine carried out directly."""
    pytest.importorskip("pandas")
    path = tmp_path_factory.mktemp("runs") / "inline"
    run_in_process(path, strategy="oort", seed=3, **SMALL)
    return path


def test_a_run_has_the_bits_of_the_engine_and_leaves_the_process_as_it_was(folder, tmp_path, capsys):
    rows, level = [], logging.getLogger("flwr").level
    torch.set_num_threads(3)
    try:
        result = run("oort", out=tmp_path / "run", seed=3, on_round=rows.append, **SMALL)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    assert logging.getLogger("flwr").level == level
    assert bits(result.folder) == bits(folder)
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert capsys.readouterr().out.startswith("round 1 of 4: accuracy ")
    x, y = result.test_data
    accuracy = (result.model(x).argmax(dim=1) == y).double().mean()
    assert accuracy == pytest.approx(result.summary["final_accuracy"][0], abs=1e-9)


def test_an_interrupted_run_goes_on_to_the_same_bits(folder, tmp_path, capsys):
    def interrupt(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("oort", out=tmp_path / "run", seed=3, on_round=interrupt, progress=False, **SMALL)
    assert len(load_run(tmp_path / "run").rounds) == 3
    with pytest.raises(ConfigError, match="keeps its own settings; leave out lr"):
        run(resume=tmp_path / "run", lr=0.2)
    result = run(resume=tmp_path / "run", progress=False)
    assert bits(result.folder) == bits(folder)
    assert capsys.readouterr().out == ""


def test_code_of_the_notebook_itself_is_refused_where_another_process_runs(tmp_path):
    with pytest.raises(ConfigError, match=r"'data' parameter names '__main__:mine'.*write the code to a file"):
        compare(["random"], data="__main__:mine", out=tmp_path / "runs")
    with pytest.raises(ConfigError, match="this run needs Ray, as 'workers' is set: use"):
        run(workers=2, out=tmp_path / "run")


def test_a_setting_without_an_effect_is_refused():
    with pytest.raises(ConfigError, match="With partition=iid, 'alpha' has no effect: leave it out"):
        run("random", partition="iid", alpha=0.1)


@pytest.mark.parametrize("jobs", [-1, 0, 1.5, True])
def test_a_comparison_without_a_place_for_a_run_is_refused(tmp_path, jobs):
    """With -1 jobs it once waited for ever."""
    with pytest.raises(ConfigError, match=r"The 'jobs' parameter must be a whole number above 0, or None"):
        compare(["random"], out=tmp_path, jobs=jobs)
