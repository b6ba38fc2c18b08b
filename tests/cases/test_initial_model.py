"""Beginning from a checkpoint: what a file of weights may hold, the same bits by every engine, a run's own model."""

import json
import os
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedsel_app import load_run
from fedsel_app.config import ConfigError
from fedsel_app.models import building
from fedsel_app.models.device import choose_device
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_model
from simulation.cli import main
from tests.cases import models
from tests.cases.test_models import DIGITS, NAMED, TOKENS, bits, deployment, interrupted, trained
from tests.support.engines import engine, inline, ray

__all__ = ["deployment", "engine"]
KINDS = {
    "with_means": {},
    "masked_positional": {},
    "spectral": {},
    "Averaged": {},
    "Tied": {},
    "in_eval_mode": {},
    "sparse_bag": TOKENS,
    "TokenClassifier": NAMED,
}


def settings_of(model: str, **named: object) -> dict[str, object]:
    values = DIGITS | {"model": f"tests.cases.models:{model}"} | KINDS.get(model, {})
    return values | {key.replace("_", "-"): value for key, value in named.items()}


def written(folder: Path, ending: str, *options: str) -> Path:
    """The file that `fedsel model` writes of the run in `folder`."""
    code = [f"--allow-code={value}" for value in load_run(folder).settings.values() if ":" in str(value)]
    file = folder.with_name(f"{folder.name}{ending}")
    assert main(["model", str(folder), "--out", str(file), *options, *code]) == 0
    return file


def loaded(file: Path) -> dict[str, torch.Tensor]:
    """The arrays of a file as its own library reads them."""
    if file.suffix == ".npz":
        return {name: torch.from_numpy(array) for name, array in np.load(file).items()}
    if file.suffix == ".pt":
        return torch.load(file, weights_only=True)
    from safetensors.torch import load_file

    return load_file(file)


@pytest.mark.parametrize(("model", "ending"), zip(KINDS, [".safetensors", ".npz", ".pt"] * 3, strict=False))
def test_a_runs_model_is_a_state_dict_with_which_the_next_run_begins(tmp_path, model, ending):
    rows = trained(tmp_path, model, **{key.replace("-", "_"): value for key, value in KINDS[model].items()})
    file, found = written(tmp_path / model, ending), load_run(tmp_path / model)
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
    best, last = (loaded(written(run, ".npz", *options)) for options in (["--best"], []))
    assert best.keys() == last.keys()
    assert not best["1.weight"].any()
    assert last["1.weight"].any()


# What a file may hold -----------------------------------------------------------------------------------------


def state(**changes: object) -> dict[str, torch.Tensor]:
    """The state dict of the model `with_means`, with these changes; None takes an array out."""
    torch.manual_seed(5)
    own = models.with_means((1, 8, 8), 10).state_dict() | {key.replace("__", "."): v for key, v in changes.items()}
    return {name: tensor for name, tensor in own.items() if tensor is not None}


def begun(file: Path, model: str = "with_means") -> np.ndarray:
    return make_model(resolve(settings_of(model, initial_model=str(file))), choose_device("cpu")).export()


def saved(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (state(**{"1__weight": None}), r"lacks 1\.weight\."),
        (state(head=torch.zeros(3)), r"has the unknown head\."),
        (state(**{"4__bias": torch.zeros(3)}), r"another shape or type of 4\.bias, \(\(3,\), 'floats'\) for \(\(10,\)"),
        (state(**{"4__bias": torch.zeros(10, dtype=torch.int64)}), "'whole numbers'"),
        (state(**{"1__weight": None, "1__weights": torch.zeros(16, 64)}), r"lacks 1\.weight, and has .* 1\.weights"),
        (state(**{"4__bias": torch.full((10,), torch.nan)}), r"others in 4\.bias"),
        ({"module.1.weight": torch.zeros(16, 64)}, r"has the unknown module\.1\.weight"),
        ({"state_dict": state(), "epoch": 3}, "Save the state dict alone.* holds state_dict, epoch"),
        ([torch.zeros(3)], "holds list"),
        (models.with_means((1, 8, 8), 10), "Save the state dict alone.* holds Python objects"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_the_names(tmp_path, content, said):
    with pytest.raises(ConfigError, match=said):
        begun(saved(tmp_path / "file.pt", content))


class Harmful:
    def __reduce__(self):
        return Path.touch, (Path("touched"),)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("absent.pt", None, "does not exist"),
        ("model.onnx", b"", r"must end with \.safetensors"),
        ("torn.safetensors", b"\x10\0\0\0\0\0\0\0{", "cannot be read: SafetensorError"),
        ("torn.npz", b"PK\3\4", "cannot be read"),
        ("torn.pt", b"PK\3\4", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        begun(tmp_path / name)


@pytest.mark.parametrize("name", ["pipe.npz", "pipe.pt"])
def test_a_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match="must name a file"):
        begun(tmp_path / name)


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="holds Python objects"):
        begun(saved(tmp_path / "file.pt", state(harmful=Harmful())))
    assert not (tmp_path / "touched").exists()


def test_a_prefix_of_dataparallel_half_precision_and_absent_counters_are_taken(tmp_path):
    whole = begun(saved(tmp_path / "plain.pt", state()))
    prefixed = {f"module.{name}": tensor for name, tensor in state().items()}
    np.testing.assert_array_equal(begun(saved(tmp_path / "prefixed.pt", prefixed)), whole)
    old = state(**{"2__num_batches_tracked": None})
    np.testing.assert_array_equal(begun(saved(tmp_path / "old.pt", old)), whole)
    save_file({name: each.bfloat16() for name, each in state().items()}, tmp_path / "half.safetensors")
    np.testing.assert_array_equal(begun(tmp_path / "half.safetensors"), torch.tensor(whole).bfloat16().float().numpy())


def test_one_name_of_a_tied_weight_is_enough_and_two_must_agree(tmp_path):
    tied = {name: tensor.clone() for name, tensor in models.Tied((1, 8, 8), 10).state_dict().items()}
    whole = begun(saved(tmp_path / "both.pt", tied), "Tied")
    for name in ("out.weight", "up.weight"):
        one = {key: each for key, each in tied.items() if key != name}
        np.testing.assert_array_equal(begun(saved(tmp_path / f"{name}.pt", one), "Tied"), whole)
    with pytest.raises(ConfigError, match="different values of the tied"):
        begun(saved(tmp_path / "other.pt", tied | {"out.weight": tied["out.weight"] + 1}), "Tied")


@pytest.mark.parametrize("model", ["frozen_layer", "in_eval_mode", "positional"])
def test_a_file_that_changes_what_is_never_sent_is_refused(tmp_path, model):
    config = resolve(settings_of(model))
    own = make_model(config, choose_device("cpu"))
    full = {name: tensor.clone() for name, tensor in own.module.state_dict().items()}
    begun(saved(tmp_path / "same.pt", full), model)
    name = next(name for name in full if name in own.state.constants)
    said = rf"Let the function of the model load .*other values of {re.escape(name)}, which are never sent"
    with pytest.raises(ConfigError, match=said):
        begun(saved(tmp_path / "other.pt", full | {name: full[name] + 0.001}), model)


def test_the_file_of_a_run_folder_without_names_says_what_to_type(tmp_path):
    trained(tmp_path, "with_means", rounds=1)
    with pytest.raises(ConfigError, match=r"fedsel model .*with_means --out FILE"):
        begun(tmp_path / "with_means" / "model.npz")


# Whole runs ---------------------------------------------------------------------------------------------------


def test_a_run_begins_with_the_file_and_a_resumed_one_ends_with_the_same_bits(tmp_path):
    file = saved(tmp_path / "file.pt", building.build("logistic", (1, 8, 8), 10, 9).state_dict())
    values = DIGITS | {"model": "logistic", "checkpoint-every": 1, "initial-model": str(file)}
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    inline(values | {"out": str(whole)})
    assert json.loads((whole / "data.json").read_text())["files"]["initial-model"]
    interrupted(values | {"out": str(resumed)})
    saved(file, {name: tensor * 2 for name, tensor in torch.load(file, weights_only=True).items()})
    with pytest.raises(ConfigError, match="The file of 'initial-model' has changed since the run"):
        inline(values | {"out": str(resumed), "resume": True})
    saved(file, building.build("logistic", (1, 8, 8), 10, 9).state_dict())
    inline(values | {"out": str(resumed), "resume": True})
    assert bits(resumed) == bits(whole)

    inline(values | {"lr": 1e-9, "rounds": 1, "out": str(tmp_path / "still")})
    weights = np.concatenate([tensor.numpy().ravel() for tensor in loaded(file).values()])
    with np.load(tmp_path / "still" / "model.npz") as still:
        np.testing.assert_allclose(still["parameters"], weights, atol=1e-6)


@pytest.mark.slow
@pytest.mark.e2e
def test_ray_and_a_deployment_end_with_the_same_bits(tmp_path: Path, engine: ProcessPoolExecutor, deployment) -> None:
    from simulation.deployment.app_folder import app_folder
    from simulation.deployment.deployed_run import app_values
    from simulation.deployment.flower_cli import submit_to_flower
    from simulation.guard.command_lines import CONNECTION

    own = make_model(resolve(settings_of("spectral", seed=9)), choose_device("cpu")).module.state_dict()
    file = saved(tmp_path / "file.pt", own)
    settings = settings_of("spectral", links="simulated", clients=3, cohort=2, initial_model=str(file))
    inline(settings | {"out": str(tmp_path / "inline")})
    engine.submit(ray, settings | {"out": str(tmp_path / "ray"), "engine": "ray", "workers": 2}).result()
    assert bits(tmp_path / "ray") == bits(tmp_path / "inline")
    lines: list[str] = []
    values = app_values(resolve(settings | {"out": str(tmp_path / "deployed")}))
    result = submit_to_flower(app_folder(), CONNECTION, values, deployment.flwr_home, None, lines.append)
    assert result.completed, "".join(lines)
    assert bits(tmp_path / "deployed") == bits(tmp_path / "inline")
