"""Beginning from a checkpoint: the same bits by every engine, a run's own model. `test_state_files` has the files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedsel_app import load_run
from fedsel_app.config import ConfigError
from fedsel_app.models import building
from fedsel_app.models.device import choose_device
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_model
from simulation.workbench.cli import main
from tests.cases import models
from tests.cases.test_models import DIGITS, NAMED, bits, interrupted, trained
from tests.support.engines import inline

KINDS = {
    "with_means": {},
    "spectral": {},
    "Averaged": {},
    "Tied": {},
    "TokenClassifier": NAMED,
}


def settings_of(model: str, **named: object) -> dict[str, object]:
    values = DIGITS | {"model": f"tests.cases.models:{model}"} | KINDS.get(model, {})
    return values | {key.replace("_", "-"): value for key, value in named.items()}


def written(folder: Path, *options: str) -> Path:
    """The file that `fedsel model` writes of the run in `folder`."""
    code = [f"--allow-code={value}" for value in load_run(folder).settings.values() if ":" in str(value)]
    file = folder.with_name(f"{folder.name}.safetensors")
    assert main(["model", str(folder), "--out", str(file), *options, *code]) == 0
    return file


def loaded(file: Path) -> dict[str, torch.Tensor]:
    """The arrays of a file as its own library reads them."""
    return load_file(file)


@pytest.mark.parametrize("model", KINDS)
def test_a_runs_model_is_a_state_dict_with_which_the_next_run_begins(tmp_path, model):
    rows = trained(tmp_path, model, **{key.replace("-", "_"): value for key, value in KINDS[model].items()})
    file, found = written(tmp_path / model), load_run(tmp_path / model)
    x, y = found.test_data
    shape = {name: each.shape[1:] for name, each in x.items()} if isinstance(x, dict) else tuple(x.shape[1:])
    plain = getattr(models, model)(shape, int(y.max()) + 1)
    plain.load_state_dict(loaded(file))
    with torch.no_grad():
        outputs = plain.eval()(**x) if isinstance(x, dict) else plain.eval()(x)
    outputs = getattr(outputs, "logits", outputs)
    assert float((outputs.argmax(1) == y).double().mean()) == pytest.approx(rows[-1]["accuracy"])

    again = make_model(resolve(settings_of(model, initial_model=str(file), seed=42)), choose_device("cpu"))
    with np.load(tmp_path / model / "model.npz") as last:
        np.testing.assert_array_equal(again.export(), last["parameters"])
        np.testing.assert_array_equal(again.buffers_vector(), last["buffers"])


def test_the_best_model_is_written_on_request(tmp_path):
    trained(tmp_path, "with_means", rounds=1)
    run = tmp_path / "with_means"
    with np.load(run / "model.npz") as last:
        np.savez(run / "best-model.npz", parameters=np.zeros_like(last["parameters"]), buffers=last["buffers"])
    best, last = (loaded(written(run, *options)) for options in (["--best"], []))
    assert best.keys() == last.keys()
    assert not best["1.weight"].any()
    assert last["1.weight"].any()
    with pytest.raises(SystemExit, match="2"):
        written(run, "--best", "--client", "0")


def begun(file: Path, model: str = "with_means") -> np.ndarray:
    return make_model(resolve(settings_of(model, initial_model=str(file))), choose_device("cpu")).export()


def saved(path: Path, content: dict[str, torch.Tensor]) -> Path:
    save_file(content, path)
    return path


def test_a_run_begins_with_the_model_of_another_runs_folder(tmp_path):
    trained(tmp_path, "with_means", rounds=1)
    run = tmp_path / "with_means"
    with np.load(run / "model.npz") as last:
        for place in (run, run / "model.npz"):
            np.testing.assert_array_equal(begun(place), last["parameters"])
    inline(settings_of("with_means", initial_model=str(run), rounds=1, out=str(tmp_path / "next")))
    assert json.loads((tmp_path / "next" / "data.json").read_text())["files"]["initial-model"]
    for model, place, sentence in (
        ("Tied", run, "Set 'model' to tests.cases.models:with_means"),
        ("Tied", run / "model.npz", "Give 'initial-model' a run of this model"),
        ("Tied", tmp_path, "has no run"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            begun(place, model)


def test_a_run_begins_with_the_file_and_a_resumed_one_ends_with_the_same_bits(tmp_path):
    file = saved(tmp_path / "file.safetensors", building.build("logistic", (1, 8, 8), 10, 9).state_dict())
    values = DIGITS | {"model": "logistic", "checkpoint-every": 1, "initial-model": str(file)}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    inline(values | {"out": str(whole)})
    assert json.loads((whole / "data.json").read_text())["files"]["initial-model"]
    interrupted(values | {"out": str(resumed)})
    saved(file, {name: tensor * 2 for name, tensor in loaded(file).items()})
    with pytest.raises(ConfigError, match="The file of 'initial-model' has changed since the run"):
        inline(values | {"out": str(resumed), "resume": True})
    saved(file, building.build("logistic", (1, 8, 8), 10, 9).state_dict())
    inline(values | {"out": str(resumed), "resume": True})
    assert bits(resumed) == bits(whole)

    inline(values | {"lr": 1e-9, "rounds": 1, "out": str(tmp_path / "still")})
    state = loaded(file)
    weights = np.concatenate(
        [state[name].numpy().ravel() for name in building.build("logistic", (1, 8, 8), 10, 9).state_dict()]
    )
    with np.load(tmp_path / "still" / "model.npz") as still:
        np.testing.assert_allclose(still["parameters"], weights, atol=1e-6)
