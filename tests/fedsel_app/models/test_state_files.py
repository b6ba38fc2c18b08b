"""State files: what a file of weights may hold."""

import os
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedsel_app.config import ConfigError
from fedsel_app.models.device import choose_device
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import make_model
from tests.cases import models
from tests.cases.test_initial_model import begun, saved, settings_of


def state(**changes: object) -> dict[str, torch.Tensor]:
    """The state dict of the model `with_means`, with these changes; None takes an array out."""
    torch.manual_seed(5)
    own = models.with_means((1, 8, 8), 10).state_dict() | {key.replace("__", "."): v for key, v in changes.items()}
    return {name: tensor for name, tensor in own.items() if tensor is not None}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (state(**{"4__bias": torch.zeros(3)}), r"another shape or type of 4\.bias, \(\(3,\), 'floats'\) for \(\(10,\)"),
        (state(**{"1__weight": None, "1__weights": torch.zeros(16, 64)}), r"lacks 1\.weight, and has .* 1\.weights"),
        (state(**{"4__bias": torch.full((10,), torch.nan)}), r"others in 4\.bias"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_the_names(tmp_path, content, said):
    with pytest.raises(ConfigError, match=said):
        begun(saved(tmp_path / "file.safetensors", content))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.pt", b"", r"must be a run folder or end with \.safetensors"),
        ("torn.safetensors", b"\x10\0\0\0\0\0\0\0{", "cannot be read: SafetensorError"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        begun(tmp_path / name)


@pytest.mark.parametrize("name", ["pipe.npz", "pipe.safetensors"])
def test_a_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match="must name a file"):
        begun(tmp_path / name)


def test_half_precision_and_absent_counters_are_taken(tmp_path):
    whole = begun(saved(tmp_path / "plain.safetensors", state()))
    old = state(**{"2__num_batches_tracked": None})
    np.testing.assert_array_equal(begun(saved(tmp_path / "old.safetensors", old)), whole)
    save_file({name: each.bfloat16() for name, each in state().items()}, tmp_path / "half.safetensors")
    np.testing.assert_array_equal(begun(tmp_path / "half.safetensors"), torch.tensor(whole).bfloat16().float().numpy())


def test_one_name_of_a_tied_weight_is_enough_and_two_must_agree(tmp_path):
    tied = {name: tensor.clone() for name, tensor in models.Tied((1, 8, 8), 10).state_dict().items()}
    whole = begun(saved(tmp_path / "both.safetensors", tied), "Tied")
    for name in ("out.weight", "up.weight"):
        one = {key: each for key, each in tied.items() if key != name}
        np.testing.assert_array_equal(begun(saved(tmp_path / f"{name}.safetensors", one), "Tied"), whole)
    with pytest.raises(ConfigError, match="different values of the tied"):
        begun(saved(tmp_path / "other.safetensors", tied | {"out.weight": tied["out.weight"] + 1}), "Tied")


@pytest.mark.parametrize("model", ["frozen_layer", "in_eval_mode", "masked_positional"])
def test_a_file_that_changes_what_is_never_sent_is_refused(tmp_path, model):
    config = resolve(settings_of(model))
    own = make_model(config, choose_device("cpu"))
    full = {name: tensor.clone() for name, tensor in own.module.state_dict().items()}
    begun(saved(tmp_path / "same.safetensors", full), model)
    name = next(name for name in full if name in own.state.constants)
    said = rf"Let the function of the model load .*other values of {re.escape(name)}, which are never sent"
    with pytest.raises(ConfigError, match=said):
        begun(saved(tmp_path / "other.safetensors", full | {name: full[name] + 0.001}), model)
