"""Flower messages of a user's client, read and written as the instructions and results of Flower's `Client`.

Flower has no public function for it: `flwr.compat.common.recorddict_compat` is what its own `ClientApp` and server use.
"""

from dataclasses import replace

from flwr.app import Message
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
)
from flwr.compat.common import recorddict_compat as compat

from fedsel_app.messages import Config

GET_PROPERTIES, FIT, EVALUATE = "get_properties", "train", "evaluate"
"""Types of the messages of which a client's `get_properties`, `fit` and `evaluate` are the answers."""


def read_config(message: Message) -> Config:
    """The config of a message of one of these types."""
    kind = message.metadata.message_type
    if kind == GET_PROPERTIES:
        return compat.recorddict_to_getpropertiesins(message.content).config
    if kind == FIT:
        return compat.recorddict_to_fitins(message.content, keep_input=True).config
    return compat.recorddict_to_evaluateins(message.content, keep_input=True).config


def read_model(message: Message) -> Parameters:
    """The model in a message to train or to evaluate."""
    if message.metadata.message_type == FIT:
        return compat.recorddict_to_fitins(message.content, keep_input=True).parameters
    return compat.recorddict_to_evaluateins(message.content, keep_input=True).parameters


def set_config(message: Message, config: Config) -> None:
    """Replace the config of a message."""
    kind = message.metadata.message_type
    if kind == GET_PROPERTIES:
        message.content = compat.getpropertiesins_to_recorddict(GetPropertiesIns(config))
    elif kind == FIT:
        message.content = compat.fitins_to_recorddict(FitIns(read_model(message), config), keep_input=True)
    else:
        message.content = compat.evaluateins_to_recorddict(EvaluateIns(read_model(message), config), keep_input=True)


def set_model(message: Message, model: Parameters) -> None:
    """Replace the model in a message to train."""
    message.content = compat.fitins_to_recorddict(FitIns(model, read_config(message)), keep_input=True)


def evaluation_of(model: Parameters, config: Config, message: Message) -> Message:
    """A message to evaluate `model`, to the client that `message` is for."""
    content = compat.evaluateins_to_recorddict(EvaluateIns(model, config), keep_input=True)
    return Message(content, dst_node_id=message.metadata.dst_node_id, message_type=EVALUATE, ttl=message.metadata.ttl)


def read_properties(reply: Message) -> GetPropertiesRes:
    """The answer of a client's `get_properties`."""
    return compat.recorddict_to_getpropertiesres(reply.content)


def read_fit(reply: Message) -> FitRes:
    """The answer of a client's `fit`."""
    return compat.recorddict_to_fitres(reply.content, keep_input=False)


def read_evaluation(reply: Message) -> EvaluateRes:
    """The answer of a client's `evaluate`."""
    return compat.recorddict_to_evaluateres(reply.content)


def answer_properties(reply: Message, result: GetPropertiesRes) -> Message:
    """The reply with another answer."""
    reply.content = compat.getpropertiesres_to_recorddict(result)
    return reply


def answer_fit(reply: Message, result: FitRes, parameters: Parameters, metrics: Config) -> Message:
    """The reply with other parameters and metrics."""
    changed = replace(result, parameters=parameters, metrics=metrics)
    reply.content = compat.fitres_to_recorddict(changed, keep_input=False)
    return reply


def answer_evaluation(message: Message, result: EvaluateRes) -> Message:
    """A reply to a message to evaluate."""
    return Message(compat.evaluateres_to_recorddict(result), reply_to=message)
