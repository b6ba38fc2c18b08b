"""Several runs in one process, as in a notebook: nothing of an earlier run is in a later one."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from fedsel_app import compare, run
from fedsel_app.caches import kept, of_a_run
from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import from_arrays, load
from simulation.workbench.cli import main
from simulation.workbench.python_interface import comparisons
from simulation.workbench.python_interface.keywords import setting_values
from tests.support.scaled_down import compare_small

SMALL = {"clients": 4, "cohort": 2, "rounds": 3, "local_steps": 20, "lr": 0.1, "partition": "iid", "progress": False}
SMALL |= {"server_optimizer": "mean", "compressor": "none", "engine": "inline"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def samples():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 8)).astype("float32")
    return x, (x[:, 0] > 0).astype("int64"), rng.integers(0, 2, 500)


def saved(y, path="mine.npz"):
    x, *_ = samples()
    np.savez(path, x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])


def test_every_kind_of_file_is_read_again_and_an_unchanged_one_is_not(folder):
    def table(path, value):
        pd.DataFrame({"x": [value, 1.5, 2.5, 3.5] * 3, "label": [0, 1] * 6}).to_csv(path, index=False)
        os.utime(path, ns=(0, int(value * 1e9)))

    def images(path, value):
        for name in ("a", "b"):
            (path / name).mkdir(parents=True, exist_ok=True)
            for number in range(3):
                Image.new("L", (2, 2), int(value)).save(path / name / f"{number}.png")
                os.utime(path / name / f"{number}.png", ns=(0, int(value * 1e9)))

    for kind, path, write in (("csv", folder / "t.csv", table), ("image-folder", folder / "pictures", images)):
        config = DataConfig(data=kind, data_path=str(path))
        found = []
        for value in (5.0, 7.0, 7.0):  # files of the same size
            write(path, value)
            with of_a_run():
                found.append(load(config, 1))
        assert [data.x_train.max() for data in found] == [5, 7, 7]
        assert found[2] is found[1]


def test_an_edited_method_is_loaded_again(folder):
    method = (
        "import numpy as np\n\nfrom strategies import Selection, SelectionStrategy\n\n\n"
        "class First(SelectionStrategy):\n    name, paper = 'first', 'none'\n\n"
        "    def select(self, roster, round_info, count, rng):\n        return Selection(np.sort(roster.ids)[:count])\n"
    )
    (folder / "own_first.py").write_text(method)
    settings = SMALL | {"rounds": 1}
    assert run("own_first:First", **settings).rounds["selected"].iloc[0] == [0, 1]
    (folder / "own_first.py").write_text(method.replace("[:count]", "[-count:]"))
    assert run("own_first:First", **settings).rounds["selected"].iloc[0] == [2, 3]
    (folder / "own_first.py").write_text("def build(:\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="names the module 'own_first', which cannot be imported: SyntaxError"):
            run("own_first:First", **settings)
    assert run("random", **settings).rounds["failures"].iloc[-1] == []  # needs no such module


def test_runs_in_two_threads_are_as_runs_one_after_the_other(folder):
    (folder / "own_drop.py").write_text(
        "from torch import nn\n\n\ndef build(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(64, classes))\n"
    )
    settings = SMALL | {"model": "own_drop:build"}

    def model(out):
        run("random", **settings, out=out)
        with np.load(f"{out}/model.npz") as arrays:
            return arrays["parameters"].tobytes()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(model, ("both-0", "both-1"))) == [model("alone")] * 2


def test_what_is_kept_belongs_to_a_run():
    built = []
    build = kept(lambda name: built.append(name) or len(built))
    with of_a_run():
        assert (build("a"), build("a")) == (1, 1)
        with of_a_run():
            assert build("a") == 2
        assert build("a") == 1
    with of_a_run(7):
        assert build("a") == 3
    with of_a_run(8):
        assert build("a") == 4
    with of_a_run(7):
        assert build("a") == 3  # the next message of this run
    assert built == ["a"] * 4


def test_numpys_numbers_lists_and_paths_are_taken(folder, monkeypatch):
    monkeypatch.setattr(comparisons, "carry_out", compare_small)
    saved(samples()[1])
    small = {"clients": np.int64(4), "cohort": np.int16(2), "progress": False, "engine": "inline"}
    given = {"rounds": np.uint8(1), "lr": np.float64(0.1), "data_path": Path("mine.npz")}
    given["settings"] = {"mu": np.array(0.2)}
    given |= small | {"error_feedback": np.bool_(False), "data": "npz"}
    done = run("random", seed=np.int64(3), out=folder / "a", **given)
    values = json.loads((folder / "a" / "config.json").read_text())
    assert [values[key] for key in ("seed", "rounds", "lr", "data-path", "error-feedback", "mu")] == [
        3, 1, 0.1, "mine.npz", False, 0.2]  # fmt: skip
    assert done.settings["clients"] == 4
    with pytest.raises(ConfigError, match=r"'lr' parameter must be a number\. Got '0\.1,0\.2'\."):
        run("random", lr=np.array([0.1, 0.2]))
    compared = compare(np.array(["random"]), seeds=np.arange(1, 3), grid={"local_steps": np.arange(5, 6)}, rounds=1,
                       out=folder / "b", **small)  # fmt: skip
    assert len(compared.summary) == 2


@pytest.mark.parametrize(
    "weights", [[1, 9], (1, 9), np.array([1, 9]), torch.tensor([1, 9]), pd.Series([1, 9]), range(1, 10, 8)]
)
def test_a_list_is_taken_where_a_setting_has_several_values(weights):
    assert setting_values({"class_weights": weights, "metrics": ["auroc", "mcc"]}, {"alphas": weights}) == {
        "class-weights": "1,9", "metrics": "auroc,mcc", "alphas": "1,9"}  # fmt: skip


def test_a_run_is_not_resumed_with_other_data_unless_told_so(folder, capsys):
    _, good, bad = samples()
    saved(good)

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    settings = SMALL | {"data": "npz", "data_path": "mine.npz", "checkpoint_every": 1, "out": "run"}
    with pytest.raises(KeyboardInterrupt):
        run("random", **settings, on_round=stop)
    first = json.loads(Path("run/data.json").read_text())
    assert (first["training_examples"], first["classes"]) == (400, 2)
    saved(bad)
    with pytest.raises(ConfigError, match=r"data of the run in .* have changed since it began.*'changed-data' to true"):
        run(resume="run", progress=False)
    assert main(["run", "--resume", "run"]) == 2
    assert "have changed since it began" in capsys.readouterr().err
    saved(good)
    os.utime("mine.npz", ns=(0, 0))  # the same values
    with pytest.raises(KeyboardInterrupt):
        run(resume="run", progress=False, on_round=lambda row: (_ for _ in ()).throw(KeyboardInterrupt))
    saved(bad)
    done = run(resume="run", progress=False, changed_data=True)
    assert len(done.rounds) == 3
    assert json.loads(Path("run/data.json").read_text())["earlier"] == [first["digest"]]


def test_the_digest_of_data_has_what_they_state():
    x, y = np.zeros((4, 2), np.float32), np.arange(4) % 2
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y}
    stated = [from_arrays(arrays | {"mean": [0, mean], "std": [1, 1]}, "it") for mean in (0, 0, 1)]
    first, same, other = (data.record["digest"] for data in stated)
    assert first == same != other
