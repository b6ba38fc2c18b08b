"""A federation of stub clients: scripted answers to the messages of `run_round`."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.common import ndarrays_to_parameters

from fedsel_app.config import Settings
from fedsel_app.messages.answers import EnrolAnswer, TrainAnswer
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.scalars import Config
from fedsel_app.wire.codec import Update, encode
from strategies.roster import Roster
from strategies.round.federation import ALL, Answers, Message, NodeError, Reply, Until
from strategies.round.replies.training import ReplyReader
from strategies.testing.fakes import dense, make_context
from tests.support.contexts import SIZE


def as_sent(*arrays: Any) -> list[bytes]:
    """The arrays as Flower sends them."""
    return ndarrays_to_parameters([np.asarray(array) for array in arrays]).tensors


def train_reply(tensors: Sequence[bytes], *, examples: int = 10, **numbers: Any) -> Reply:
    """A reply with any arrays, and with `numbers` as the fields of its `TrainAnswer`."""
    return Reply(TrainAnswer(**numbers).to_config() if numbers else {}, tensors, examples)


def update_reply(update: Update, client: int, server_round: int, **numbers: Any) -> Reply:
    """Valid reply; `numbers` replace or extend the fields of its `TrainAnswer`."""
    payload = encode(update, client=client, server_round=server_round)
    return with_payload(train_reply([b""], **{"loss": 1.0, "work_steps": 2.0} | numbers), payload)


def sent_payload(reply: Reply) -> bytes:
    """Payload in the first array of a reply."""
    return np.frombuffer(reply.tensors[0], np.uint8, offset=128).tobytes()


def with_payload(reply: Reply, payload: bytes) -> Reply:
    """The reply with another payload in each of its arrays."""
    return replace(reply, tensors=as_sent(np.frombuffer(payload, np.uint8)) * len(reply.tensors))


def scored(loss: float, examples: int, accuracy: float | None = None) -> Reply:
    """Reply to a loss probe or to a test of the model."""
    return Reply({} if accuracy is None else {"accuracy": accuracy}, (), examples, loss)


def decoded(replies, asked, server_round, size, reports=(), **settings):
    """Replies of the `asked` clients after the round decodes and checks them, but before it bounds their numbers."""
    context = make_context(
        Settings(), clients=int(max(asked)) + 1, cohort=1, size=size, **{"max_update_norm": 0.0} | settings
    )
    roster = Roster(context.run.clients)
    roster.examples[:] = 10
    reader = ReplyReader(context, roster, reports, 1)
    instruction = TrainInstruction(server_round, "run", 0.1, 1.0, 1.0, False)
    return reader.decode(replies, dict.fromkeys(map(int, asked), instruction))


def round_of(message: Message) -> int:
    """Round of a message."""
    return message.instruction.server_round


def update_of(client):
    """Client k sends an update with the value k + 1 at entry k."""
    return Update(SIZE, np.array([client], np.uint32), np.array([client + 1.0], np.float32))


def sends_its_update(client, message):
    return update_reply(update_of(client), client, round_of(message))


def noisy(client, message):
    """Values whose float sum depends on the order."""
    rng = np.random.default_rng([client, round_of(message)])
    values = rng.normal(size=SIZE) * 10.0 ** rng.integers(-8, 8, SIZE)
    return update_reply(dense(values.tolist()), client, round_of(message), loss=float(rng.random()))


class StubClient:
    """Client `client`, which answers at once; `asked` collects its messages.

    `train` is the answer to a train message, and `loss` the answer to a probe. If one is an exception, it is raised.
    """

    def __init__(
        self,
        client: int,
        train: Callable[[int, Message], Reply | Exception] = sends_its_update,
        *,
        node: str | None = None,
        loss: float | Exception = 1.0,
        examples: int = 10,
        properties: Config | Exception | None = None,
        accuracy: float | None = None,
    ) -> None:
        self.client, self.node = client, str(client) if node is None else node
        self.asked: list[Message] = []
        self._train, self._loss, self._accuracy = train, loss, accuracy
        self._properties = EnrolAnswer(client, examples).to_config() if properties is None else properties

    def answer(self, message: Message) -> Reply:
        """Reply to a message. Raises the scripted exception."""
        self.asked.append(message)
        kind = message.instruction.message_type
        return {"query": self.enrol, "train": self.train, "evaluate": self.evaluate}[kind](message)

    def enrol(self, message: Message) -> Reply:
        return Reply(_given(self._properties))

    def train(self, message: Message) -> Reply:
        return _given(self._train(self.client, message))

    def evaluate(self, message: Message) -> Reply:
        return scored(_given(self._loss), 10, self._accuracy)

    @property
    def kinds(self) -> list[str]:
        """Kind of each message: "query", "train" or "evaluate"."""
        return [message.instruction.message_type for message in self.asked]

    def told(self, kind: str) -> list[Any]:
        """Instructions of one kind."""
        return [message.instruction for message in self.messages(kind)]

    def messages(self, kind: str) -> list[Message]:
        """Messages of one kind."""
        return [message for message in self.asked if message.instruction.message_type == kind]


def _given(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


class StubFederation:
    """Federation of the `clients`, connected in their order. An exception of a client is its node's answer."""

    simulated = False

    def __init__(self, clients: Iterable[StubClient]) -> None:
        self.clients = {client.node: client for client in clients}

    def join(self, client: StubClient) -> None:
        """Connect one more client."""
        self.clients[client.node] = client

    def leave(self, client: StubClient) -> None:
        """Disconnect a client."""
        del self.clients[client.node]

    def nodes(self) -> Set[str]:
        """Ids of the connected nodes."""
        return set(self.clients)

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Every client's answer to its message."""
        return {message.node: self._answer(message) for message in messages}

    def _answer(self, message: Message) -> Reply | NodeError:
        try:
            return self.clients[message.node].answer(message)
        except Exception as error:  # noqa: BLE001 - it is the node's answer
            return NodeError(message.node, str(error))


def trio(train=sends_its_update, **options):
    """Clients 0, 1 and 2 with 10, 20 and 30 examples."""
    return [StubClient(client, train, examples=10 * (client + 1), **options) for client in range(3)]
