"""Arrays that honest clients send: 0-d, empty, of all dtypes, tied, in another order of values or of bytes."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

import fedsel_app
from fedsel_app.config import ConfigError
from simulation.apps.client.legacy_messages import selecting
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, node, run_app

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


def changed(arrays, client):
    """Float arrays grow by (client + 1) / 8, whole numbers by one; dtypes and orders stay those of `MODEL`."""
    grown = []
    for array, like in zip(arrays, MODEL.values(), strict=True):
        kind = like.dtype.kind
        after = array + (client + 1) / 8 if kind == "f" else ~array if kind == "b" else array + 1
        grown.append(np.asarray(after, like.dtype, order="F" if like.ndim > 1 else "C"))
    return grown


class Legacy(NumPyClient):
    """The client in the legacy API."""

    def __init__(self, client, seen):
        self.client = client

    def fit(self, parameters, config):
        return changed(parameters, self.client), EXAMPLES[self.client], {}


def registered(app):
    """The app with the client in the Message API."""

    @app.train()
    def train(message, context):
        client, arrays = context.node_config["partition-id"], message.content["arrays"]
        named = zip(arrays, changed(arrays.to_numpy_ndarrays(), client), strict=True)
        records = {
            "arrays": ArrayRecord({name: Array(array) for name, array in named}),
            "metrics": MetricRecord({"num-examples": EXAMPLES[client]}),
        }
        return Message(RecordDict(records), reply_to=message)

    return app


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
@pytest.mark.parametrize("api", ["message", "legacy"])
def test_honest_arrays_of_every_kind_are_averaged(tmp_path, api, line):
    settings = {"clients": CLIENTS, "cohort": CLIENTS, "rounds": 2, "links": "simulated"}
    if api == "legacy":
        built = fedsel_app.strategy("random", parameters=list(MODEL.values()), **settings)
        final = run_app(built, 2, mods=[selecting] if line else [], kind=Legacy, state_dir=tmp_path)
    else:
        app = registered(fedsel_app.client_app() if line else ClientApp())
        grid = InProcessGrid(app, {90 + client: node(client, tmp_path) for client in range(CLIENTS)})
        initial = ArrayRecord({name: Array(array) for name, array in MODEL.items()})
        result = fedsel_app.strategy("random", **settings).start(grid=grid, initial_arrays=initial)
        assert list(result.arrays) == list(MODEL)
        final = result.arrays.to_numpy_ndarrays()
    for found, (name, start) in zip(final, MODEL.items(), strict=True):
        grows = start.dtype.kind == "f"
        assert found.shape == start.shape, name
        assert found.dtype == start.dtype, name
        tolerance = 1e-3 if start.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(found, start + 2 * MEAN if grows else start, rtol=tolerance, err_msg=name)
    np.testing.assert_array_equal(final[2], final[3])


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


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
@pytest.mark.parametrize("api", ["message", "legacy"])
def test_float64_keeps_its_precision(tmp_path, api, line):
    def moved(array, client):
        return (array + array.dtype.type((client + 1) / 7)).astype(array.dtype)

    class Client(NumPyClient):
        def __init__(self, client, seen):
            self.client = client

        def fit(self, parameters, config):
            return [moved(array, self.client) for array in parameters], EXAMPLES[self.client], {}

    app = fedsel_app.client_app() if line else ClientApp()

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        after = {name: Array(moved(array.numpy(), client)) for name, array in message.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": EXAMPLES[client]})
        return Message(RecordDict({"arrays": ArrayRecord(after), "metrics": metrics}), reply_to=message)

    settings = {"clients": CLIENTS, "cohort": CLIENTS, "rounds": 2, "links": "simulated", "out": tmp_path / "run"}
    if api == "legacy":
        built = fedsel_app.strategy("random", parameters=list(WIDE.values()), statistics=[1, 2], **settings)
        final = run_app(built, 2, mods=[selecting] if line else [], kind=Client, state_dir=tmp_path)
    else:
        grid = InProcessGrid(app, {90 + client: node(client, tmp_path) for client in range(CLIENTS)})
        initial = ArrayRecord({name: Array(array) for name, array in WIDE.items()})
        final = fedsel_app.strategy("random", **settings).start(grid=grid, initial_arrays=initial)
        final = final.arrays.to_numpy_ndarrays()
    mean = sum(examples * (client + 1) / 7 for client, examples in enumerate(EXAMPLES)) / sum(EXAMPLES)
    for found, (name, start) in zip(final, WIDE.items(), strict=True):
        assert found.dtype == start.dtype, name
        np.testing.assert_allclose(found, start + 2 * mean, rtol=4 * np.finfo(start.dtype).eps, err_msg=name)
