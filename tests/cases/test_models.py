"""Models of users' kinds, trained by whole runs: the right values, no failures, the same bits by every engine."""

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsel_app import load_run
from fedsel_app.config import ConfigError
from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from tests.cases.data import tokens
from tests.support.engines import engine, inline, ray
from tests.support.rounds import rounds

__all__ = ["engine"]
DIGITS = {"clients": 6, "cohort": 3, "rounds": 3, "local-steps": 5, "batch-size": 16}
DIGITS |= {"partition": "iid", "device": "cpu"}
OWNERS = {"partition": "natural", "clients": 5, "cohort": 5, "local-steps": 0, "local-epochs": 1, "batch-size": 32}
TOKENS = {"data": "tests.cases.data:tokens", "lr": 0.3}
NAMED = {"data": "tests.cases.data:named_tokens", "lr": 0.3}


def trained(folder: Path, model: str, **settings) -> list[dict]:
    """The rounds of an inline run, in which no client may fail."""
    named = {key.replace("_", "-"): value for key, value in settings.items()}
    values = DIGITS | {"model": f"tests.cases.models:{model}", "out": str(folder / model)} | named
    inline_engine.simulate(resolve(values), lambda row: None)
    found = rounds(folder / model)
    assert [row["failures"] for row in found] == [[]] * len(found)
    return found


def results(rows: list[dict]) -> list[tuple]:
    return [(row["loss"], row["accuracy"]) for row in rows]


def bits(folder: Path) -> dict:
    with np.load(folder / "model.npz") as arrays:
        return {name: array.tobytes() for name, array in arrays.items()} | {"rounds": rounds(folder)}


# Last mini-batches of one example -----------------------------------------------------------------------------


def test_a_last_batch_of_one_joins_the_one_before_where_a_model_needs_it(tmp_path):
    trained(tmp_path, "batch_norm", data="tests.cases.data:owners_of_two", **OWNERS)


def test_a_client_that_can_never_train_is_refused_before_the_first_round(tmp_path):
    with pytest.raises(ConfigError, match=r"Give client 3 at least 2 training examples, or leave it out\. It has 1"):
        trained(tmp_path, "batch_norm", data="tests.cases.data:owners_of_one", **OWNERS)
    assert not rounds(tmp_path / "batch_norm")


def test_mini_batches_of_one_example_are_refused_if_the_model_cannot_train_on_them(tmp_path):
    with pytest.raises(ConfigError, match="Set 'batch-size' to 2 or more"):
        trained(tmp_path, "with_means", batch_size=1)


# Statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "form"),
    [
        ("with_means", "average"),
        ("with_means", "sequential"),
        ("with_means", "training"),
        ("cumulative", "training"),
    ],
)
def test_statistics_are_known_by_their_layers(tmp_path, model, form):
    rows = trained(tmp_path, model, calibration_form=form, max_update_norm=0.0)
    assert rows[-1]["accuracy"] > 0.55
    count = 16
    size = np.load(tmp_path / model / "model.npz")["parameters"].size
    # In sequence, the first client's 15 mini-batches and 5 of the second.
    sent = {"average": 3 * (size + 4 * count), "sequential": 2 * (size + 4 * count), "training": 3 * 2 * count}[form]
    assert [row["calibration_bytes"] for row in rows] == [4 * sent] * 3


@pytest.mark.parametrize("model", ["in_eval_mode"])
def test_frozen_statistics_are_neither_calibrated_nor_charged(tmp_path, model):
    rows = trained(tmp_path, model)
    assert not any(row["calibration_bytes"] for row in rows)
    module = load_run(tmp_path / model).model
    frozen = [layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm1d)]
    assert not any(layer.running_mean.any() for layer in frozen)


# Constants ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["masked_positional", "Turned", "frozen_by_numpy"])
def test_constants_are_never_sent(tmp_path, model):
    rows = trained(tmp_path, model)
    assert not any(row["calibration_bytes"] for row in rows)
    assert not np.load(tmp_path / model / "model.npz")["buffers"].size


def test_frozen_weights_that_differ_are_refused_when_a_client_enrols(tmp_path):
    with pytest.raises(ConfigError, match=r"same weights on every machine.*differ from the server's in 1\.weight"):
        trained(tmp_path, "frozen_by_chance")


# Buffers that training changes --------------------------------------------------------------------------------

CHANGING = {"spectral": 80, "Averaged": 65, "Shadow": 64 * 16 + 16 + 16 * 10 + 10}
"""Model -> entries of its buffers and frozen parameters that training changes."""


@pytest.mark.parametrize("model", CHANGING)
def test_buffers_that_change_are_averaged(tmp_path, model):
    rows = trained(tmp_path, model, curvature_layers=0)
    assert [row["calibration_bytes"] for row in rows] == [3 * 4 * CHANGING[model]] * 3
    assert np.load(tmp_path / model / "model.npz")["buffers"].shape == (CHANGING[model],)


def test_a_moving_average_of_the_weights_is_that_of_the_clients(tmp_path):
    """One client with a step a round: the average moves half way to the weights that the step begins with."""
    alone = {"clients": 1, "cohort": 1, "local_steps": 1, "lr_decay": 0}
    alone |= {"server_optimizer": "mean", "compressor": "none"}
    after = []
    for count in (1, 2):
        trained(tmp_path / str(count), "Shadow", rounds=count, **alone)
        with np.load(tmp_path / str(count) / "Shadow" / "model.npz") as arrays:
            after.append((arrays["parameters"], arrays["buffers"]))
    (first, start), (_, average) = after
    np.testing.assert_allclose(average, (start + first) / 2, atol=1e-7)
    assert not np.array_equal(start, first)
    assert scored(tmp_path / "2" / "Shadow")


# Inputs and outputs -------------------------------------------------------------------------------------------


def test_a_model_that_writes_into_its_input_gets_a_copy(tmp_path):
    assert results(trained(tmp_path, "inplace_halved")) == results(trained(tmp_path, "Halved"))


def test_sparse_gradients_become_dense(tmp_path):
    assert results(trained(tmp_path, "sparse_bag", **TOKENS)) == results(trained(tmp_path, "Bag", **TOKENS))
    assert bits(tmp_path / "sparse_bag")["parameters"] == bits(tmp_path / "Bag")["parameters"]


def test_inputs_may_be_a_dict_and_outputs_have_logits(tmp_path):
    trained(tmp_path, "TokenClassifier", **NAMED)
    rows = trained(tmp_path, "WordsAndNumbers", data="tests.cases.data:tokens_and_numbers", lr=0.3)
    assert rows[-1]["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("half", r"return model\.float\(\): its parameter '1\.weight' is torch\.float16"),
        ("complex_weights", "'phases' is complex"),
        ("scripted", r"without torch\.jit"),
        ("sparse_buffer", r"make the buffer 'edges' dense \(to_dense\(\)\): it is torch.sparse_coo"),
        ("endless", "finite weights: some are infinite or NaN"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(tmp_path, model, said):
    with pytest.raises(ConfigError, match=said):
        trained(tmp_path, model)


@pytest.mark.parametrize(("part", "token"), [("x_train", 50), ("x_test", -1)])
def test_tokens_out_of_the_vocabulary_are_refused_before_the_first_round(tmp_path, part, token):
    data = tokens(None)
    data[part][7, 3] = token
    np.savez(tmp_path / "tokens.npz", **data)
    with pytest.raises(ConfigError, match=r"does not accept this data set's samples.*index out of range"):
        trained(tmp_path, "Bag", data="npz", data_path=str(tmp_path / "tokens.npz"))


def test_tokens_of_any_whole_type_are_the_same_and_floats_are_refused(tmp_path):
    def found(kind: type) -> list[tuple]:
        data = {name: array.astype(kind if name[0] == "x" else int) for name, array in tokens(None).items()}
        file = tmp_path / f"{kind.__name__}.npz"
        np.savez(file, **data)
        return results(trained(tmp_path / kind.__name__, "Bag", data="npz", data_path=str(file)))

    assert found(np.int16) == found(np.int64)
    with pytest.raises(ConfigError, match=r"does not accept .*float32, and tokens are int64"):
        found(np.float32)


def test_data_of_one_class_are_refused(tmp_path):
    data = {name: array * (name[0] == "x") for name, array in tokens(None).items()}
    np.savez(tmp_path / "one.npz", **data)
    with pytest.raises(ConfigError, match="Give the data a second class"):
        trained(tmp_path, "Bag", data="npz", data_path=str(tmp_path / "one.npz"))


# The same everywhere ------------------------------------------------------------------------------------------

KINDS = {
    "masked_positional": {},
    "spectral": {},
    "Averaged": {},
    "Shadow": {"curvature-layers": 0},
    "Tied": {},
    "cumulative": {},
    "sparse_bag": TOKENS,
    "TokenClassifier": NAMED,
}
"""Model -> settings."""


def scored(folder: Path) -> bool:
    """True if the returned model has the recorded accuracy."""
    found = load_run(folder)
    x, y = found.test_data
    with torch.no_grad():
        outputs = found.model(**x) if isinstance(x, dict) else found.model(x)
    outputs = getattr(outputs, "logits", outputs)
    return float((outputs.argmax(1) == y).double().mean()) == pytest.approx(rounds(folder)[-1]["accuracy"])


def test_tied_weights_stay_tied(tmp_path):
    trained(tmp_path, "Tied")
    module = load_run(tmp_path / "Tied").model
    assert module.out.weight is module.up.weight
    # 64 x 10 shared weights, 64 x 10 more, and three biases.
    assert np.load(tmp_path / "Tied" / "model.npz")["parameters"].size == 640 + 640 + 10 + 64 + 10


def interrupted(settings: dict[str, object]) -> None:
    def stop(row: dict[str, object]) -> None:
        if row["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(SystemExit):
        inline_engine.simulate(resolve(settings), stop)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("model", KINDS)
def test_ray_and_a_resumed_run_end_with_the_same_bits(tmp_path: Path, engine: ProcessPoolExecutor, model: str) -> None:
    settings = DIGITS | {"model": f"tests.cases.models:{model}"} | KINDS[model]
    inline(settings | {"out": str(tmp_path / "inline")})
    engine.submit(ray, settings | {"out": str(tmp_path / "ray"), "engine": "ray", "workers": 2}).result()
    assert bits(tmp_path / "ray") == bits(tmp_path / "inline")
    interrupted(settings | {"out": str(tmp_path / "resumed"), "checkpoint-every": 1})
    inline(settings | {"out": str(tmp_path / "resumed"), "checkpoint-every": 1, "resume": True})
    assert bits(tmp_path / "resumed") == bits(tmp_path / "inline")
    assert json.loads((tmp_path / "ray/summary.json").read_text(encoding="utf-8"))["rounds"] == settings["rounds"]
