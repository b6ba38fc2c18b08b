"""Arrays that honest clients send: 0-d, empty, of all dtypes, tied, masked, in another order of values or of bytes."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from fedsel_app.config import ConfigError
from simulation.apps.client.array_layout import ArrayLayout
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, node

pytestmark = pytest.mark.usefixtures("task_identity")
LINES = pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
TIED = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)
MODEL = {
    "scale": np.array(2.5, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "embed.weight": TIED,
    "head.weight": TIED,
    "double": np.linspace(0.0, 1.0, 4),
    "causal": np.triu(np.full((3, 3), -np.inf, np.float32), 1),
    "half": np.linspace(0.0, 1.0, 5, dtype=np.float16),
    "steps": np.array(7),
    "none": np.zeros(0, np.int32),
    "mask": np.array([True, False, True]),
    "turned": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "foreign": np.arange(3).astype(">f4"),
}
WIDE = {
    "weight": np.array([1 / 3, 1e9 + 1 / 3, -2e-9]),
    "norm.running_mean": np.array([1e9 + 1 / 7]),
    "norm.running_var": np.array([1 / 7]),
    "narrow": np.array([1 / 3], np.float32),
}
"""A model of float64, in which float32 would keep 7 of 16 digits."""
EXAMPLES = (10, 20, 30, 40)
MEAN = (10 * 1 + 20 * 2 + 30 * 3 + 40 * 4) / 8 / 100
"""Mean of the clients' changes, each (client + 1) / 8, weighted by examples: 0.375."""


def changed(array, step):
    """Float arrays grow by a step, whole numbers by one; types and orders stay."""
    kind = array.dtype.kind
    after = array + step if kind == "f" else ~array if kind == "b" else array + 1
    return np.asarray(after, array.dtype, order="F" if array.ndim > 1 else "C")


def each_changed(arrays, step):
    return {name: changed(array, step) for name, array in arrays.items()}


def ran(folder, line, model, change=each_changed, rounds=2):
    """Final arrays of a run in which client i adds (i + 1) / 8 to the arrays, which `change` makes a reply."""
    app = fedsel_app.client_app() if line else ClientApp()

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        record = {name: Array(np.asarray(array)) for name, array in change(arrays, (client + 1) / 8).items()}
        metrics = MetricRecord({"num-examples": EXAMPLES[client]})
        content = {"model": ArrayRecord(record), "m": metrics, "c": ConfigRecord({"a": "b"})}
        return Message(RecordDict(content), reply_to=message)

    built = fedsel_app.strategy("random", clients=CLIENTS, cohort=CLIENTS, out=folder / "run")
    grid = InProcessGrid(app, {90 + client: node(client, folder) for client in range(CLIENTS)})
    initial = ArrayRecord({name: Array(array) for name, array in model.items()})
    return built.start(grid=grid, initial_arrays=initial, num_rounds=rounds).arrays


@pytest.mark.parametrize("dtype", ["complex64", "longdouble", "<U3", "datetime64[s]"])
def test_a_model_with_other_arrays_is_refused(dtype):
    arrays = {"a": np.zeros(2, np.float32), "b": np.zeros(2).astype(dtype)}
    with pytest.raises(ConfigError, match=r"real numbers or truth values, of at most 8 bytes each.*position 1"):
        ArrayLayout(arrays)


@LINES
@pytest.mark.parametrize(("model", "digits"), [(MODEL, 1e-6), (WIDE, 1e-15)], ids=["every kind", "float64"])
def test_honest_arrays_of_every_kind_are_averaged_in_their_precision(tmp_path, model, digits, line):
    """Whole numbers, and arrays with an infinity, keep their initial values."""
    final = ran(tmp_path, line, model)
    assert list(final) == list(model)
    for (name, start), array in zip(model.items(), final.to_numpy_ndarrays(), strict=True):
        assert (array.dtype, array.shape) == (start.dtype, start.shape), name
        is_float = start.dtype.kind == "f"
        expected = start + 2 * MEAN if is_float and np.isfinite(start).all() else start
        tolerance = max(digits, 2 * np.finfo(start.dtype).eps if is_float else 0.0)
        np.testing.assert_allclose(array, expected, rtol=tolerance, err_msg=name)


@LINES
@pytest.mark.parametrize(("dtype", "order"), [("f4", reversed), ("f8", sorted), ("f2", reversed), (">f4", sorted)])
def test_arrays_are_read_by_their_names_and_keep_their_type(tmp_path, line, dtype, order):
    """As text, 10 comes before 2."""
    model = {str(number): np.full((2, 2), number, np.float32) for number in range(12)}

    def change(arrays, step):
        return {name: (arrays[name] + np.float32(step)).astype(dtype) for name in order(list(arrays))}

    final = ran(tmp_path, line, model, change, rounds=1)
    assert list(final) == list(model)
    for name, array in final.items():
        assert array.numpy().dtype == np.float32
        np.testing.assert_allclose(array.numpy(), np.full((2, 2), int(name) + MEAN), rtol=1e-6)


@LINES
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda arrays, step: {"B": arrays["b"]}, r"by their names: 1 of .* missing \(b\), and 1 .* model's \(B\)"),
        (lambda arrays, step: {}, "1 of the model's 1 arrays are missing"),
        (lambda arrays, step: {"b": arrays["b"][None]}, r"the first, b, has \(1, 1\) in place of \(1,\)"),
    ],
    ids=["case", "none", "column"],
)
def test_arrays_of_other_names_or_shapes_are_refused_with_the_reason(tmp_path, line, change, reason):
    with pytest.raises(RuntimeError, match=reason):
        ran(tmp_path, line, {"b": np.zeros(1, np.float32)}, change)
