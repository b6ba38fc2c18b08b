"""Replies of users' apps as in public reports, with the values worked out by hand."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import node

pytestmark = pytest.mark.usefixtures("task_identity")
ONE = {"b": np.zeros(1, np.float32)}


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def ran(folder, line, examples, change=lambda arrays, step: {name: arrays[name] + step for name in arrays}, **options):
    """Result of a round in which client i adds (i + 1) / 8 to the arrays, which `change` makes a reply."""
    app, model = fedsel_app.client_app() if line else ClientApp(), options.pop("model", ONE)

    def told(client, **metrics):
        return MetricRecord({"num-examples": examples[client], "eval_loss": 1.0 / (client + 1), **metrics})

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        changed = record(change(arrays, np.float32((client + 1) / 8)))
        return Message(
            RecordDict({"model": changed, "m": told(client), "c": ConfigRecord({"a": "b"})}), reply_to=message
        )

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"m": told(context.node_config["partition-id"])}), reply_to=message)

    @app.query()
    def query(message, context):
        return Message(RecordDict({"q": MetricRecord({"examples": 3})}), reply_to=message)

    clients = len(examples)
    grid = InProcessGrid(app, {90 + client: node(client, folder) for client in range(clients)})
    built = fedsel_app.strategy("random", clients=clients, cohort=clients, **options)
    return built.start(grid=grid, initial_arrays=record(model), num_rounds=1)


LINES = pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])


@LINES
@pytest.mark.parametrize(
    ("examples", "mean", "loss"),
    [
        ((10, 10, 10, 5000), (10 * 1 + 10 * 2 + 10 * 3 + 5000 * 4) / 5030 / 8, 0.25215),
        ((10, 10, 10, 1000), (10 * 1 + 10 * 2 + 10 * 3 + 1000 * 4) / 1030 / 8, 0.26052),
        ((1, 9), 0.2375, 0.55),
        ((10.0, 10.0), 0.1875, 0.75),
        ((0.5, 0.0, 1.5), (0.5 * 1 + 1.5 * 3) / 2 / 8, 0.5),
        ((1, 1, 1, 10**9), 0.5, 0.25),
    ],
)
def test_weights_are_the_examples_for_the_model_and_the_metrics(tmp_path, line, examples, mean, loss):
    found = ran(tmp_path, line, examples)
    np.testing.assert_allclose(found.arrays["b"].numpy(), mean, rtol=1e-6)
    assert found.evaluate_metrics_clientapp[1]["eval_loss"] == pytest.approx(loss, abs=1e-5)


@LINES
@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, step: {name: arrays[name] + step for name in reversed(arrays)},
        lambda arrays, step: {name: arrays[name] + step for name in sorted(arrays)},
        lambda arrays, step: {name: (arrays[name] + step).astype(np.float64) for name in arrays},
        lambda arrays, step: {name: (arrays[name] + step).astype(np.float16) for name in arrays},
        lambda arrays, step: {name: (arrays[name] + step).astype(">f4") for name in arrays},
    ],
    ids=["reverse", "as text", "float64", "float16", "big-endian"],
)
@pytest.mark.parametrize("names", [("a", "z"), tuple(map(str, range(12)))], ids=["letters", "numbers"])
def test_arrays_are_read_by_their_names_and_keep_their_type(tmp_path, line, change, names):
    """Clients of 10 examples add 1/8 and 2/8."""
    model = {name: np.full((2, 2), place, np.float32) for place, name in enumerate(names)}
    found = ran(tmp_path, line, (10, 10), change, model=model).arrays
    assert list(found) == list(names)
    for place, name in enumerate(names):
        assert found[name].numpy().dtype == np.float32
        np.testing.assert_array_equal(found[name].numpy(), np.full((2, 2), place + 1.5 / 8, np.float32))


@LINES
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda arrays, step: {"B": arrays["b"]}, r"by their names|differ in B, b"),
        (lambda arrays, step: {}, "1 of the model's 1 arrays are missing|differ in b"),
        (
            lambda arrays, step: {"b": arrays["b"].reshape(1, 1)},
            r"the first, (b|number 0), has \(1, 1\) in place of \(1,\)",
        ),
    ],
    ids=["case", "none", "column"],
)
def test_arrays_of_other_names_or_shapes_are_refused_with_the_reason(tmp_path, line, change, reason):
    with pytest.raises(RuntimeError, match=reason):
        ran(tmp_path, line, (10, 10), change)
