"""Federation: the interface between a round and the clients of a run, and the wait for their answers.

There are three: `flower_grid` (Flower's grid: simulation on Ray, deployment, users' apps), `flower_manager` (Flower's
legacy client manager) and `simulation.engines.inline_engine` (this process).
"""

import math
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np
from flwr.common import ndarrays_to_parameters
from numpy.typing import NDArray

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.instructions import Instruction
from fedsel_app.messages.scalars import Scalar
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.wire.rounded_values import encode_values, round_values


@dataclass(frozen=True, eq=False)
class SentModel:
    """The model as it is sent.

    Attributes
    ----------
    arrays : float32; parameters (N,), then BatchNorm statistics (B,) if any, then SCAFFOLD's control variate (N,). With
        few bits (`rounded_model`) the first is uint8, a section of `fedsel_app.wire.rounded_values`
    stated_bytes : bytes of what the instruction beside it states of the model's entries
    """

    arrays: tuple[NDArray[Any], ...]
    stated_bytes: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of one transfer: its entries and what is stated of them, without a header."""
        return self.stated_bytes + sum(array.nbytes for array in self.arrays)

    @cached_property
    def tensors(self) -> list[bytes]:
        """The arrays as Flower sends them."""
        return ndarrays_to_parameters(list(self.arrays)).tensors


NO_MODEL = SentModel(())


def sent_model(parameters: NDArray[np.float32], buffers: NDArray[np.float32]) -> SentModel:
    """The global model as it is sent: parameters (N,), and BatchNorm statistics (B,) if there are any."""
    return SentModel((parameters, buffers) if buffers.size else (parameters,))


def rounded_model(model: SentModel, bits: int) -> SentModel:
    """The model with its parameters rounded to `bits`, 16, 8 or 4; the same model for 32.

    A model that is not finite is not rounded either: the clients refuse it, and say that training diverged.
    """
    parameters, *others = model.arrays
    if bits == 32 or not np.isfinite(parameters).all():
        return model
    section = encode_values(round_values(parameters, bits))
    return SentModel((np.frombuffer(section, np.uint8), *others))


@dataclass(frozen=True, eq=False)
class Message:
    """One instruction to one client, with the model.

    Attributes
    ----------
    node : Flower's id of the client's node
    client : partition id; None before the node is enrolled
    """

    node: str
    instruction: Instruction
    model: SentModel = NO_MODEL
    client: int | None = None


@dataclass(frozen=True, eq=False)
class Reply:
    """Reply of a client, unchecked.

    Attributes
    ----------
    metrics : the numbers of its answer, see `fedsel_app.messages.answers`
    tensors : its arrays, each as `numpy.save` writes it
    examples, loss : Flower's own fields of a reply to a train or an evaluate message
    arrived_s : seconds from the question to this reply
    sums : exact sums over clients of a simulation, this one included, in place of its own payloads; their replies share
        the object
    enrolment : answer of a client of this process, in place of its numbers
    """

    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    tensors: Sequence[bytes] = ()
    examples: int = 0
    loss: float = math.nan
    arrived_s: float = 0.0
    sums: CohortSum | None = None
    enrolment: EnrolAnswer | None = None

    @classmethod
    def of(cls, numbers: Mapping[str, Scalar], tensors: Sequence[bytes], arrived_s: float = 0.0) -> Self:
        """Reply with the numbers and the arrays of an answer."""
        examples, loss = cast(int, numbers.get("examples", 0)), cast(float, numbers.get("loss", math.nan))
        return cls(numbers, tensors, examples, loss, arrived_s)


class NodeError(RuntimeError):
    """Failure of a node: it does not answer, or its answer is an error.

    Attributes
    ----------
    node : Flower's id of the node
    """

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(reason)
        self.node = node


Answer = Reply | NodeError
Answers = dict[str, Answer]
"""Node -> its reply, or why there is none."""


@dataclass(frozen=True)
class Until:
    """End of a wait: after `replies` replies (None: all), or after `deadline_s` seconds (0: no deadline)."""

    replies: int | None = None
    deadline_s: float = 0.0


ALL = Until()


class Federation(Protocol):
    """The clients of a run."""

    simulated: bool
    """True if the clients are processes of this run. Then all of them are connected and must enrol."""

    def nodes(self) -> Set[str]:
        """Ids of the nodes that are connected now."""

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Send the messages, one to a node, and wait; return the answer of every node, in any order."""


@runtime_checkable
class Mailbox(Federation, Protocol):
    """Clients to whom a server may send without waiting for their answers."""

    def send(self, messages: Sequence[Message]) -> None:
        """Send the messages, one to a node, and do not wait."""

    def receive(self) -> Answers:
        """The answers to messages of `send` that have come; waits for one. Empty if no message is unanswered."""


class Wait:
    """Wait for the answers to one question.

    Parameters
    ----------
    messages : the question, a message to each node
    timeouts : timeouts of the clients' answers, which adapt to these answers; None: no timeout

    Attributes
    ----------
    answers : the answers so far
    missing : the nodes that have not answered
    """

    def __init__(self, messages: Sequence[Message], until: Until, timeouts: ReplyTimeout | None = None) -> None:
        self._until, self._timeouts, self._began_s, self._replies = until, timeouts, time.monotonic(), 0
        self._kind = messages[0].instruction.message_type if messages else ""
        self._timeout_s = math.inf if timeouts is None else timeouts.longest_wait_s(self._kind)
        self.answers: Answers = {}
        self.missing = {message.node for message in messages}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the question."""
        return time.monotonic() - self._began_s

    @property
    def enough(self) -> bool:
        """True if the needed number of clients has replied."""
        return self._until.replies is not None and self._replies >= self._until.replies

    @property
    def left_s(self) -> float:
        """Remaining seconds of the wait; 0 if it is over."""
        if not self.missing or self.enough:
            return 0.0
        return max(min(self._until.deadline_s or math.inf, self._timeout_s) - self.elapsed_s, 0.0)

    def add(self, node: str, answer: Answer) -> None:
        """Add the answer of a node."""
        self.missing.discard(node)
        self.answers[node] = answer
        self._replies += isinstance(answer, Reply)

    def result(self) -> Answers:
        """The answers, and an error for each node without one."""
        if self.enough:
            reason = "it did not reply, and enough other clients did"
        elif self._until.deadline_s and self._until.deadline_s <= self._timeout_s:
            reason = f"it did not reply within {self._until.deadline_s:g} s"
        else:
            reason = f"it did not answer within {self._timeout_s:.0f} s: see 'reply-timeout-s'"
        if self._timeouts is not None:
            for answer in self.answers.values():
                if isinstance(answer, Reply):
                    self._timeouts.learn(self._kind, answer.arrived_s)
        return self.answers | {node: NodeError(node, reason) for node in self.missing}
