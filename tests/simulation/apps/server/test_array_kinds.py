"""Arrays that honest clients send: 0-d, empty, of all dtypes, tied, in another order of values or of bytes."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from fedsel_app.config import ConfigError
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, node

pytestmark = pytest.mark.usefixtures("task_identity")
TIED = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)
MODEL = {
    "scale": np.array(2.5, np.float32),
    "empty": np.zeros((0, 3), np.float32),
    "embed.weight": TIED,
    "head.weight": TIED,
    "double": np.linspace(0.0, 1.0, 4),
    "half": np.linspace(0.0, 1.0, 5, dtype=np.float16),
    "steps": np.array(7),
    "none": np.zeros(0, np.int32),
    "mask": np.array([True, False, True]),
    "turned": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "foreign": np.arange(3).astype(">f4"),
}
EXAMPLES = (10, 20, 30, 40)
MEAN = (10 * 1 + 20 * 2 + 30 * 3 + 40 * 4) / 8 / 100
"""Mean of the clients' changes, each (client + 1) / 8, weighted by examples: 0.375."""


@pytest.mark.parametrize("dtype", ["complex64", "longdouble", "<U3", "datetime64[s]"])
def test_a_model_with_other_arrays_is_refused(dtype):
    arrays = [np.zeros(2, np.float32), np.zeros(2).astype(dtype)]
    with pytest.raises(ConfigError, match=r"real numbers or truth values, of at most 8 bytes each.*position 1"):
        fedsel_app.strategy("random", parameters=arrays, clients=2, cohort=2, rounds=1)


WIDE = {
    "weight": np.array([1 / 3, 1e9 + 1 / 3, -2e-9]),
    "norm.running_mean": np.array([1e9 + 1 / 7]),
    "norm.running_var": np.array([1 / 7]),
    "narrow": np.array([1 / 3], np.float32),
}
"""A model of float64, in which float32 would keep 7 of 16 digits."""


def changed(array, client):
    """Float arrays grow by (client + 1) / 8, whole numbers by one; types and orders stay."""
    kind = array.dtype.kind
    after = array + (client + 1) / 8 if kind == "f" else ~array if kind == "b" else array + 1
    return np.asarray(after, array.dtype, order="F" if array.ndim > 1 else "C")


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
@pytest.mark.parametrize(("model", "digits"), [(MODEL, 1e-6), (WIDE, 1e-15)], ids=["every kind", "float64"])
def test_honest_arrays_of_every_kind_are_averaged_in_their_precision(tmp_path, model, digits, line):
    app = fedsel_app.client_app() if line else ClientApp()

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        after = {name: Array(changed(array.numpy(), client)) for name, array in message.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": EXAMPLES[client]})
        return Message(RecordDict({"arrays": ArrayRecord(after), "metrics": metrics}), reply_to=message)

    built = fedsel_app.strategy("random", clients=CLIENTS, cohort=CLIENTS, out=tmp_path / "run")
    grid = InProcessGrid(app, {90 + client: node(client, tmp_path) for client in range(CLIENTS)})
    initial = ArrayRecord({name: Array(array) for name, array in model.items()})
    final = built.start(grid=grid, initial_arrays=initial, num_rounds=2).arrays
    assert list(final) == list(model)
    for (name, start), array in zip(model.items(), final.to_numpy_ndarrays(), strict=True):
        assert (array.dtype, array.shape) == (start.dtype, start.shape), name
        expected = start + 2 * MEAN if start.dtype.kind == "f" else start
        tolerance = max(digits, 2 * np.finfo(start.dtype).eps if start.dtype.kind == "f" else 0.0)
        np.testing.assert_allclose(array, expected, rtol=tolerance, err_msg=name)
