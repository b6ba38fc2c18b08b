"""fedsel's own clients behind Flower's messages, in the layout of `fedsel_app.messages.records`.

In a simulation every process has the data of all clients. So one message can address several clients, which share its
arrays (`SharedAnswers`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from flwr.app import Message, MessageType, RecordDict
from flwr.common import NDArrays

from clients.client import SelectionClient
from fedsel_app.config import ConfigError
from fedsel_app.messages.instructions import Instruction, TrainInstruction, read_instruction
from fedsel_app.messages.records import (
    ERROR,
    MACHINE_FAULT,
    clients_named,
    content_arrays,
    fedsel_config,
    put_answer,
    put_sums,
)
from fedsel_app.messages.scalars import Scalars
from fedsel_app.records.files import MachineFault

if TYPE_CHECKING:
    from fedsel_app.exact_sums import CohortSum
    from fedsel_app.models.flat_model import FlatModel


class SharedAnswers:
    """Answers of clients that share a process and the arrays of a model.

    A model to evaluate is loaded once for all clients, and the payloads of trainings with a weight are added up.
    """

    def __init__(self) -> None:
        self._loaded: FlatModel | None = None
        self.sums: CohortSum | None = None
        """Sums of the payloads so far; None before the first."""

    def answer(
        self, client: SelectionClient, instruction: Instruction, arrays: NDArrays
    ) -> tuple[Scalars, NDArrays, bool]:
        """A client's answer to the instruction, the same as to a message of its own.

        Raises what `SelectionClient.answer` raises.

        Returns
        -------
        answer, arrays : as `SelectionClient.answer` returns them
        added : whether the payloads were added to the `sums` instead of returned
        """
        if instruction.message_type == MessageType.EVALUATE:
            self._loaded = self._loaded or client.load(arrays)
        added = isinstance(instruction, TrainInstruction) and instruction.weight > 0.0
        if added and self.sums is None:
            from fedsel_app.exact_sums import CohortSum

            self.sums = CohortSum()
        return *client.answer(instruction, arrays, self._loaded, self.sums if added else None), added


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
            told, payloads = client_of(None).answer(_instruction(content, message_type), arrays)
            put_answer(reply, told.to_config(), payloads)
        except MachineFault as error:
            put_answer(reply, {MACHINE_FAULT: str(error)})
        except ConfigError as error:
            raise ConfigError(error.told) from error
    shared = SharedAnswers()
    for client in clients:
        try:
            instruction = _instruction(content, message_type, client)
            told, payloads, _ = shared.answer(client_of(client), instruction, arrays)
            put_answer(reply, told.to_config(), payloads, client)
        except Exception as error:  # noqa: BLE001 - any exception here is a failure of this client only
            put_answer(reply, {MACHINE_FAULT if isinstance(error, MachineFault) else ERROR: str(error)}, (), client)
    if shared.sums is not None:
        put_sums(reply, shared.sums.arrays())
    return reply


def _instruction(content: RecordDict, message_type: str, client: int | None = None) -> Instruction:
    """The instruction for `client`, or for the receiver. Raises ValueError if there is none of fedsel's."""
    config = fedsel_config(content, client)
    if config is None:
        raise ValueError("The message has no instruction of fedsel's. Server and clients must run the same app.")
    return read_instruction(config, message_type)
