"""Client tests' support: a small set-up, and the messages that a server sends."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from torch import nn

from clients.client import SelectionClient
from clients.state import ClientHistory
from fedsel_app import flower_client
from fedsel_app.config import ExecutionConfig, RunConfig
from fedsel_app.data.dataset import load
from fedsel_app.data.partition import split
from fedsel_app.messages.answers import EnrolAnswer, TrainAnswer
from fedsel_app.messages.instructions import CalibrateInstruction, EnrolInstruction, TrainInstruction
from fedsel_app.messages.records import ARRAYS, ERROR, content_arrays, fedsel_config, question, record_name
from fedsel_app.models.building import build
from fedsel_app.wire.codec import decode

CLIENTS = 6
CPU = ExecutionConfig(device="cpu")
RUN = RunConfig(clients=CLIENTS, cohort=2, seed=3)
SIZE = 64 * 10 + 10
NORMED = "tests.support.client_messages:normed"


def normed(sample_shape, classes):
    """A small network with BatchNorm and dropout."""
    return nn.Sequential(
        *(nn.Conv2d(sample_shape[0], 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Flatten(), nn.Linear(3 * 6 * 6, classes)),
    )


def changed(context, *, client=None, store=None, **groups):
    """`context` with some fields of its settings groups replaced."""
    new = {name: dataclasses.replace(getattr(context, name), **values) for name, values in groups.items()}
    new |= {name: value for name, value in (("client", client), ("store", store)) if value is not None}
    return dataclasses.replace(context, **new)


def initial(context):
    """The global model of round 1: parameters, and statistics if there are any."""
    dataset = load(context.data, context.run.seed)
    module = build(context.run.model, dataset.sample_shape, dataset.classes, context.run.seed)
    groups = [list(module.parameters()), [b for b in module.buffers() if b.is_floating_point()]]
    return [torch.cat([t.detach().flatten() for t in tensors]).numpy() for tensors in groups if tensors]


def instruction(server_round=1, kept=0.1, beta=0.9, lr=0.1, last_instructed=None, last_aggregated=None, **fields):
    """Instruction to train. By default the server asked the client in the previous round and aggregated its reply."""
    before = server_round - 1
    return TrainInstruction(
        server_round=server_round,
        run_key="run",
        learning_rate=lr,
        kept_fraction=kept,
        residual_decay=beta,
        last_instructed=before if last_instructed is None else last_instructed,
        last_aggregated=before if last_aggregated is None else last_aggregated,
        **{"curvature": False} | fields,
    )


def train(context, arrays=None, **keys):
    """Train with a new client for this message: its update and its answer."""
    arrays = arrays or initial(context)
    [payload], _, metrics = SelectionClient(context).fit(arrays, instruction(**keys).to_config())
    assert payload.dtype == np.uint8
    packet = decode(payload.tobytes(), size=arrays[0].size)
    assert (packet.client, packet.server_round) == (context.client, keys.get("server_round", 1))
    return packet.update, TrainAnswer.from_metrics(metrics)


def enrol(context, **asked):
    """The answer of a client that enrols."""
    properties = SelectionClient(context).get_properties(EnrolInstruction(**asked).to_config())
    return EnrolAnswer.from_properties(properties, CLIENTS)


def client_examples(context):
    labels = load(context.data, RUN.seed).y_train
    return split(context.partition, labels, CLIENTS, RUN.seed)[context.client]


def remembered(context, server_round):
    """The client's state after a round whose reply was aggregated."""
    return context.store.of_run("run").recall(context.client, ClientHistory(server_round, server_round))[0]


def train_message(clients=()):
    """A message to train for one client or several `clients`, with only the fields that an engine reads."""
    instruction = CalibrateInstruction(1, 1)
    content = question(dict.fromkeys(clients, instruction) if clients else instruction)
    return SimpleNamespace(metadata=SimpleNamespace(message_type="train"), content=content)


def message(content, kind, node=7):
    """A message from the server, in the form that a client receives."""
    return Message(content, node, kind)


def read_answer(content, client=None):
    """Numbers and arrays of the answer of a message's only client, or of one of several. Raises its exception."""
    numbers = fedsel_config(content, client)
    if ERROR in numbers:
        raise RuntimeError(numbers[ERROR])
    return SimpleNamespace(numbers=numbers, arrays=content_arrays(content, record_name(ARRAYS, client)))


def ask(app, instruction, arrays=None, context=None):
    """The answer of a ClientApp to a question of fedsel's server to one client."""
    record = None if arrays is None else ArrayRecord(list(arrays))
    content = question(instruction, record)
    return read_answer(app(message(content, instruction.message_type), context).content)


def node_enrolment(node_config, run_config, *, counts=False):
    """Numbers with which the client of a SuperNode enrols."""
    context = Context(1, 2, node_config, RecordDict(), run_config)
    return ask(flower_client.app, EnrolInstruction(counts), context=context).numbers
