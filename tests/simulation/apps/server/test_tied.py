"""One tensor with several names: compressed and noisy updates leave its arrays equal, as if it had one name."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from fedsel_app.config import ConfigError
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, node

pytestmark = pytest.mark.usefixtures("task_identity")
ROUNDS = 3
BIAS, WEIGHT = np.zeros(4, np.float32), np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)
NAMES = ("embedding.weight", "norm.weight", "decoder.weight", "decoder.bias")
"""The decoder's weight is the embedding's, as in a language model."""
SPARSE = {"compressor": "top-k", "kept_fraction": 0.25, "kept_warmup_rounds": 0}
PRIVATE = {"dp_clip_norm": 1.0, "dp_noise_multiplier": 1.0, "dp_delta": 0.01, "weighting": "uniform"}
PRIVATE |= {"example_clip": 10.0, "links": "simulated"}


def moved(name, array, client):
    """The array after a training, which differs from entry to entry and from client to client."""
    step = np.cos(np.arange(array.size) * (client + 1)).reshape(array.shape)
    return array + np.float32(0.1) * (step if name.endswith("bias") else 1.0 - array * step).astype(np.float32)


def trained(arrays, client, apart=(), frozen=()):
    """The arrays after a training. Those `apart` move in their own ways, and the embedding as the decoder."""
    after = {name: moved(name, array, client + len(name) * (name in apart)) for name, array in arrays.items()}
    after |= {name: arrays[name] for name in frozen}
    if "embedding.weight" in arrays and "embedding.weight" not in apart:
        after["embedding.weight"] = after["decoder.weight"]
    return after


def ran(folder, arrays, *, line=True, apart=(), frozen=(), **options):
    """The arrays after three rounds of an app."""
    options = {"clients": CLIENTS, "cohort": CLIENTS, "fraction_evaluate": 0.0} | options
    app = fedsel_app.client_app() if line else ClientApp()

    @app.train()
    def train(message, context):
        received = {name: array.numpy() for name, array in message.content["arrays"].items()}
        after = trained(received, context.node_config["partition-id"], apart, frozen)
        record = ArrayRecord({name: Array(after[name]) for name in reversed(after)})
        return Message(RecordDict({"a": record, "m": MetricRecord({"num-examples": 10})}), reply_to=message)

    grid = InProcessGrid(app, {90 + client: node(client, folder) for client in range(CLIENTS)})
    initial = ArrayRecord({name: Array(array) for name, array in arrays.items()})
    found = fedsel_app.strategy("random", **options).start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS).arrays
    return {name: array.numpy() for name, array in found.items()}


def model(weight=WEIGHT, norm=BIAS + 1):
    """The initial model."""
    return dict(zip(NAMES, (weight, norm, weight, BIAS), strict=True))


@pytest.mark.parametrize(
    "options",
    [
        SPARSE | {"error_feedback": False},
        SPARSE | {"error_feedback_scheme": "ef21"},
        SPARSE | {"compressor": "rand-k"},
        {"compressor": "common-k", "kept_fraction": 0.4, "kept_warmup_rounds": 0},
        {"value_bits": 4},
    ],
    ids=str,
)
def test_tied_arrays_end_as_the_one_tensor_that_they_are(tmp_path, options):
    found = ran(tmp_path / "two", model(), **options)
    single = {name: array for name, array in model().items() if name != "embedding.weight"}
    expected = ran(tmp_path / "one", single, **options)
    assert not np.array_equal(expected["decoder.weight"], WEIGHT)
    for name, array in (expected | {"embedding.weight": expected["decoder.weight"]}).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_noise_leaves_tied_arrays_equal(tmp_path, line):
    found = ran(tmp_path, model(), line=line, **PRIVATE)
    assert not np.array_equal(found["decoder.weight"], WEIGHT)
    np.testing.assert_array_equal(found["embedding.weight"], found["decoder.weight"])


def test_tied_arrays_of_one_number_are_named_by_the_refusal_and_then_stay_equal(tmp_path):
    """Equal numbers may be an initialisation, so only the training tells."""
    initial = model(np.full((4, 3), 0.5, np.float32))
    places = [["embedding.weight", "decoder.weight"]]
    with pytest.raises(RuntimeError) as refused:
        ran(tmp_path, initial, **SPARSE)
    assert f"Set 'tied' of strategy(...) to {places}" in str(refused.value)
    found = ran(tmp_path, initial, **SPARSE, tied=places)
    np.testing.assert_array_equal(found["embedding.weight"], found["decoder.weight"])
    assert np.ptp(found["decoder.weight"]) > 0


def test_arrays_that_begin_alike_and_move_apart_are_no_tied_ones(tmp_path):
    """Such as the target network of self-supervised learning."""
    with pytest.raises(RuntimeError) as refused:
        ran(tmp_path, model(), apart=NAMES, **SPARSE)
    assert "Set 'tied' of strategy(...) to []" in str(refused.value)
    for options in (SPARSE | {"tied": []}, {}):
        found = ran(tmp_path / str(len(options)), model(), apart=NAMES, **options)
        assert not np.array_equal(found["embedding.weight"], found["decoder.weight"])


def test_arrays_that_are_alike_without_being_trained_are_no_matter(tmp_path):
    found = ran(tmp_path, model(norm=BIAS), frozen=("norm.weight", "decoder.bias"), **SPARSE)
    np.testing.assert_array_equal(found["embedding.weight"], found["decoder.weight"])
    np.testing.assert_array_equal(found["norm.weight"], BIAS)


@pytest.mark.parametrize(
    ("tied", "reason"),
    [
        ([["embedding.weight", "decoder.bias"]], r"\[0, 3\] is none"),
        ([["embedding.weight", "decoder.weight"], ["decoder.weight", "embedding.weight"]], r"\[0, 2\] is none"),
        (
            [["decoder.weight", "head"]],
            "no array named 'head'. Its arrays are embedding.weight, norm",
        ),
        ([[0, 9]], r"\[0, 9\] is none"),
        ([["decoder.weight"]], r"\[2\] is none"),
        (["decoder.weight", "embedding.weight"], r"to a list of groups, such as \[\['decoder.weight', 'embedding"),
    ],
)
def test_tied_arrays_that_are_none_are_refused(tmp_path, tied, reason):
    with pytest.raises(ConfigError, match=reason):
        ran(tmp_path, model(), **SPARSE, tied=tied)
