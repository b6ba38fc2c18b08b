"""fedsel's own client for Flower's messages, in the layout of `fedsel_app.messages.records`.

In a simulation every process has the data of all clients. So one message can address several clients, which share its
arrays.
"""

from collections.abc import Callable

from flwr.app import Message, MessageType, RecordDict
from flwr.common import NDArrays

from clients.client import SelectionClient
from fedsel_app.messages.instructions import read_evaluate_instruction
from fedsel_app.messages.records import ERROR, clients_named, fedsel_config, put_answer, read_arrays
from fedsel_app.messages.scalars import Config
from fedsel_app.models.flat_model import FlatModel

ClientOf = Callable[[int | None], SelectionClient]
"""Client of a partition id; for None, the client that received the message."""


def answer(message: Message, client_of: ClientOf) -> Message:
    """Answer a message of fedsel's server, see `answer_content`."""
    return Message(answer_content(message.metadata.message_type, message.content, client_of), reply_to=message)


def answer_content(message_type: str, content: RecordDict, client_of: ClientOf) -> RecordDict:
    """Answer a question to one client, or to several clients one after the other.

    The exception of a single client is raised. With several clients, an exception is the answer of its client. Each
    answer equals the client's answer to a message of its own, but a model to evaluate is loaded only once.

    Raises
    ------
    ValueError
        If the content is not a question of fedsel's.
    """
    arrays = read_arrays(content)
    clients = clients_named(content)
    reply = RecordDict()
    if not clients:
        put_answer(reply, *_answer(client_of(None), message_type, arrays, _instruction(content)))
        return reply
    model: FlatModel | None = None
    for client in clients:
        try:
            asked = client_of(client)
            config = _instruction(content, client)
            if message_type == MessageType.EVALUATE:
                model = asked.load(arrays) if model is None else model
                answered = asked.evaluation(model, read_evaluate_instruction(config))
                put_answer(reply, answered.to_config(), (), client)
            else:
                put_answer(reply, *_answer(asked, message_type, arrays, config), client)
        except Exception as error:  # noqa: BLE001 - any exception here is a failure of this client only
            put_answer(reply, {ERROR: str(error)}, (), client)
    return reply


def _answer(client: SelectionClient, message_type: str, arrays: NDArrays, config: Config) -> tuple[Config, NDArrays]:
    """The numbers and the arrays of a client's answer."""
    if message_type == MessageType.QUERY:
        return client.get_properties(config), []
    if message_type == MessageType.TRAIN:
        sent, _, metrics = client.fit(arrays, config)
        return metrics, sent
    return client.evaluation(client.load(arrays), read_evaluate_instruction(config)).to_config(), []


def _instruction(content: RecordDict, client: int | None = None) -> Config:
    config = fedsel_config(content, client)
    if config is None:
        raise ValueError("The message has no instruction of fedsel's. Server and clients must run the same app.")
    return config
