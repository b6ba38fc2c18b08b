"""One tensor with several names, which compression and noise would move apart, is refused."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
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


@pytest.mark.parametrize("weight", [WEIGHT, np.full((4, 3), 0.5, np.float32)], ids=["weights", "one number"])
@pytest.mark.parametrize(
    ("line", "options"),
    [(True, SPARSE), (True, {"value_bits": 4}), (True, PRIVATE), (False, PRIVATE)],
    ids=["top-k", "few bits", "noise", "noise, unchanged"],
)
def test_tied_arrays_that_would_move_apart_are_refused_by_name(tmp_path, weight, line, options):
    reason = r"Send one of the arrays embedding\.weight, decoder\.weight, and tie the others to it in the client"
    with pytest.raises(RuntimeError, match=reason):
        ran(tmp_path, model(weight), line=line, **options)


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_whole_updates_leave_tied_arrays_equal(tmp_path, line):
    found = ran(tmp_path, model(), line=line)
    assert not np.array_equal(found["decoder.weight"], WEIGHT)
    np.testing.assert_array_equal(found["embedding.weight"], found["decoder.weight"])


def test_arrays_that_begin_alike_and_move_apart_are_no_tied_ones(tmp_path):
    """Such as the target network of self-supervised learning."""
    found = ran(tmp_path, model(), apart=NAMES, **SPARSE)
    assert not np.array_equal(found["embedding.weight"], found["decoder.weight"])


def test_arrays_that_are_alike_without_being_trained_are_no_matter(tmp_path):
    found = ran(tmp_path, model(norm=BIAS), apart=NAMES, frozen=("norm.weight", "decoder.bias"), **SPARSE)
    np.testing.assert_array_equal(found["norm.weight"], BIAS)
