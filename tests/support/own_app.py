"""A user's own Flower app in this process: clients with a small linear model, in Flower's own ClientApp."""

import json

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedsel_app.config import CompressionConfig
from simulation.apps.client.messages import AppTrainInstruction

CLIENTS, FEATURES, CLASSES = 4, 3, 2
NAMES = ("scale", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "fc.weight", "fc.bias")
"""Names of the model's arrays."""


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


def by_name(arrays):
    """A record of the model's arrays, or of any arrays in the order of the model's."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in zip(NAMES, arrays, strict=True)})


def register(app, seen, metrics=None, loss=None):
    """Register a training and an evaluation with a client app.

    `seen` collects the client, the type and the records of each message; `metrics` are sent with those of a training,
    and may be a function of the client.
    `loss` is a function of the client and its loss that returns the metrics of an evaluation for it.
    """

    def noted(message, context):
        seen.append((context.node_config["partition-id"], message.metadata.message_type, dict(message.content)))
        return seen[-1][0], message.content["arrays"].to_numpy_ndarrays()

    @app.train()
    def train(message, context):
        client, arrays = noted(message, context)
        found = losses(arrays, *data(client))
        own = metrics(client) if callable(metrics) else metrics or {}
        metric = {"num-examples": len(found), "train_loss": float(found.mean())} | own
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
    """fedsel's question in a message, in addition to the user's own records."""
    content = RecordDict({"config": ConfigRecord({"lr": 0.5})})
    if arrays is not None:
        content["arrays"] = by_name(arrays)
    content["fedsel"] = ConfigRecord(instruction.to_config())
    return Message(content, 90, kind or instruction.message_type)
