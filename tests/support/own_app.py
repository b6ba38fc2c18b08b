"""A user's own Flower app in this process: clients with a small linear model, in Flower's own ClientApp."""

import json
import threading
from functools import partial

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client import ClientApp, NumPyClient
from flwr.common import parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy

from fedsel_app.config import CompressionConfig
from simulation.apps.client.messages import AppTrainInstruction

CLIENTS, FEATURES, CLASSES = 4, 3, 2
NAMES = ("scale", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "fc.weight", "fc.bias")
"""Names of the model's arrays in an app of Flower's Message API."""


def model():
    """A matrix, its biases, a double, and running statistics as PyTorch's state_dict has them."""
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    statistics = [np.zeros(2, np.float32), np.ones(2, np.float32), np.array(0)]
    return [rng.normal(size=2), *statistics, weight, np.zeros(CLASSES, np.float32)]


def data(client):
    """10, 20, 30 ... examples, with another distribution at every client."""
    rng = np.random.default_rng(100 + client)
    x = rng.normal(client, 1.0, (10 * (client + 1), FEATURES)).astype(np.float32)
    return x, (x.sum(axis=1) > 3.0 * client).astype(np.int64)


def losses(arrays, x, y):
    """Squared error of each example."""
    targets = np.eye(CLASSES, dtype=np.float32)[y]
    return np.square(x @ arrays[4].T + arrays[5] - targets).sum(axis=1)


def trained(arrays, client):
    """The arrays after three steps on the client's data; statistics and count change too."""
    x, y = data(client)
    scale, mean, variance, count, weight, bias = (array.copy() for array in arrays)
    for _ in range(3):
        error = x @ weight.T + bias - np.eye(CLASSES, dtype=np.float32)[y]
        weight -= (0.01 * error.T @ x / len(y)).astype(np.float32)
        bias -= (0.01 * error.mean(axis=0)).astype(np.float32)
    mean += np.float32(0.1 * client)
    return [scale * 0.9, mean, variance * np.float32(0.5), count + 3, weight, bias]


class OwnClient(NumPyClient):
    """A client as in Flower's documentation: arrays in, all arrays out. `seen` collects the arguments of `fit`."""

    def __init__(self, client, seen):
        self.client, self.seen = client, seen

    def fit(self, parameters, config):
        self.seen.append((self.client, config, parameters))
        after = trained(parameters, self.client)
        return after, len(data(self.client)[1]), {"train_loss": float(losses(parameters, *data(self.client)).mean())}

    def evaluate(self, parameters, config):
        found = losses(parameters, *data(self.client))
        return float(found.mean()), len(found), {"accuracy": 0.5}


class BrokenClient(OwnClient):
    """A client that does not return one of its arrays."""

    def fit(self, parameters, config):
        return parameters[:-1], 10, {}


def by_name(arrays):
    """A record of the model's arrays, or of any arrays in the order of the model's."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in zip(NAMES, arrays, strict=True)})


def register(app, seen, metrics=None, loss=None):
    """Register the training and evaluation of `OwnClient` with an app of Flower's Message API.

    `seen` collects the client, the type and the records of each message; `metrics` are sent with those of a training.
    `loss` is a function of the client and its loss that returns the metrics of an evaluation for it.
    """

    def noted(message, context):
        seen.append((context.node_config["partition-id"], message.metadata.message_type, dict(message.content)))
        return seen[-1][0], message.content["arrays"].to_numpy_ndarrays()

    @app.train()
    def train(message, context):
        client, arrays = noted(message, context)
        found = losses(arrays, *data(client))
        metric = {"num-examples": len(found), "train_loss": float(found.mean())} | (metrics or {})
        records = {"arrays": by_name(trained(arrays, client)), "metrics": MetricRecord(metric)}
        return Message(RecordDict(records), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        client, arrays = noted(message, context)
        found = losses(arrays, *data(client))
        told = {"eval_loss": float(found.mean())} if loss is None else loss(client, float(found.mean()))
        metric = {"num-examples": len(found), "eval_acc": 0.5} | told
        return Message(RecordDict({"metrics": MetricRecord(metric)}), reply_to=message)

    return app


def node(client, state_dir=""):
    """Context of a client, at node 90 + `client`."""
    config = {"partition-id": client, "num-partitions": CLIENTS, "state-dir": str(state_dir)}
    return Context(run_id=1, node_id=90 + client, node_config=config, state=RecordDict(), run_config={})


def app_instruction(server_round=1, *, compression=None, **fields):
    """Instruction to train for a user's client, whose previous reply the server aggregated."""
    before = server_round - 1
    options = {"compressor": "top-k", "curvature_layers": 0} | (compression or {})
    known = {"run_key": "run", "learning_rate": 0.1, "kept_fraction": 0.3, "residual_decay": 0.9, "curvature": False}
    known |= {"last_instructed": before, "last_aggregated": before, "seed": 5, "statistics_positions": "1,2"}
    config = json.dumps(CompressionConfig(**options).values())
    return AppTrainInstruction(server_round=server_round, compression=config, **known | fields)


def named_question(instruction, arrays=None, *, kind=None):
    """fedsel's question in a message of the Message API, in addition to the user's own records."""
    content = RecordDict({"config": ConfigRecord({"lr": 0.5})})
    if arrays is not None:
        content["arrays"] = by_name(arrays)
    content["fedsel"] = ConfigRecord(instruction.to_config())
    return Message(content, 90, kind or instruction.message_type)


ONE_CLIENT = threading.Lock()
"""Lock for the answers of this process's clients: Flower reads arrays with `ast`, which can fail in several threads."""


class AppGrid:
    """Flower's grid for one ClientApp in this process. An exception becomes an error, as in Flower's engines."""

    def __init__(self, app, contexts):
        self._app, self._contexts = app, contexts

    def send_and_receive(self, messages, timeout=None):
        with ONE_CLIENT:
            return list(map(self._answer, messages))

    def _answer(self, message):
        try:
            return self._app(message, self._contexts[message.metadata.dst_node_id])
        except Exception as error:  # noqa: BLE001 - it is the answer
            return Message(Error(code=2, reason=str(error)), reply_to=message)


def run_app(strategy, rounds, **options):
    """Run Flower's server with the strategy and four clients of the app; return the final arrays."""
    return parameters_to_ndarrays(served(strategy, rounds, **options)[0].parameters)


def served(
    strategy,
    rounds,
    *,
    mods=(),
    around=None,
    kind=OwnClient,
    nodes=None,
    strays=(),
    state_dir="",
    seen=None,
    grid=AppGrid,
):
    """Flower's server after a run with the strategy and four clients of the app, and its history.

    The nodes in `strays` have the app without its mods. `around` gets each message, its context and the app.
    """
    seen = [] if seen is None else seen

    def client_fn(context):
        return kind(context.node_config["partition-id"], seen).to_client()

    app, unchanged = ClientApp(client_fn, mods=list(mods)), ClientApp(client_fn)
    if around is not None:
        app = partial(around, call_next=app)
    contexts = {}
    for client, node in enumerate(nodes or range(90, 90 + CLIENTS)):
        config = {"partition-id": client, "num-partitions": CLIENTS, "state-dir": str(state_dir)}
        contexts[node] = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
    manager = SimpleClientManager()
    for node in contexts:
        manager.register(GridClientProxy(node, grid(unchanged if node in strays else app, contexts), 1))
    server = Server(client_manager=manager, strategy=strategy)
    history, _ = server.fit(rounds, timeout=None)
    return server, history
