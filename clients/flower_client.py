"""fedsel's own client for Flower's messages, in the layout of `fedsel_app.messages.records`.

In a simulation every process has the data of all clients. So one message can address several clients, which share its
arrays.
"""

from collections.abc import Callable

from flwr.app import Message, RecordDict

from clients.client import SelectionClient
from clients.shared_answers import SharedAnswers
from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import read_instruction
from fedsel_app.messages.records import (
    ERROR,
    MACHINE_FAULT,
    clients_named,
    content_arrays,
    fedsel_config,
    put_answer,
    put_sums,
)
from fedsel_app.messages.scalars import Config
from fedsel_app.records.files import MachineFault

ClientOf = Callable[[int | None], SelectionClient]
"""Client of a partition id; for None, the client that received the message."""


def answer(message: Message, client_of: ClientOf) -> Message:
    """Answer a message of fedsel's server, see `answer_content`."""
    return Message(answer_content(message.metadata.message_type, message.content, client_of), reply_to=message)


def answer_content(message_type: str, content: RecordDict, client_of: ClientOf) -> RecordDict:
    """Answer a question to one client, or to several clients one after the other.

    The exception of a single client is raised, unless its machine fails: then the answer says so. A ConfigError
    is raised as it may be told to the server; its cause has the values. With several clients, which only a simulation
    has, an exception is the answer of its client. Each answer equals the client's answer to a message of its own,
    but a model to evaluate is loaded only once, and vectors are added up where the instructions have weights.

    Raises ValueError if the content is not a question of fedsel's.
    """
    arrays, clients, reply = content_arrays(content), clients_named(content), RecordDict()
    if not clients:
        try:
            instruction = read_instruction(_instruction(content), message_type)
            put_answer(reply, *client_of(None).answer(instruction, arrays))
        except MachineFault as error:
            put_answer(reply, {MACHINE_FAULT: str(error)})
        except ConfigError as error:
            raise ConfigError(error.told) from error
    shared = SharedAnswers()
    for client in clients:
        try:
            numbers, payloads, _ = shared.answer(client_of(client), message_type, _instruction(content, client), arrays)
            put_answer(reply, numbers, payloads, client)
        except Exception as error:  # noqa: BLE001 - any exception here is a failure of this client only
            put_answer(reply, {MACHINE_FAULT if isinstance(error, MachineFault) else ERROR: str(error)}, (), client)
    if shared.sums is not None:
        put_sums(reply, shared.sums.arrays())
    return reply


def _instruction(content: RecordDict, client: int | None = None) -> Config:
    """The instruction for `client`, or for the receiver. Raises ValueError if there is none of fedsel's."""
    config = fedsel_config(content, client)
    if config is None:
        raise ValueError("The message has no instruction of fedsel's. Server and clients must run the same app.")
    return config
