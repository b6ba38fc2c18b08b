"""Flower's grid as a federation: clients in Ray's workers or on other machines, by Flower's Message API.

In a simulation a few messages instruct a whole cohort, because every message costs Flower and Ray up to 25 ms of a core
and carries the model. One client then answers for the others (see `clients.flower_client`).
"""

import logging
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import cast

from flwr.app import Array, ArrayRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.serverapp import Grid

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.instructions import Instruction, TrainInstruction
from fedsel_app.messages.records import ARRAYS, ERROR, MACHINE_FAULT, fedsel_config, question, read_sums, record_name
from fedsel_app.messages.reported_values import one_line
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.files import MachineFault
from fedsel_app.secure_sums.statement import run_name
from strategies.round.federation import ALL, Answer, Answers, Message, NodeError, Reply, SentModel, Until, Wait

LOGGER = logging.getLogger("fedsel")
SHORTEST_PAUSE_S, LONGEST_PAUSE_S, PAUSE_SHARE = 0.02, 1.0, 0.1
"""Bounds of the pause between two polls, and the pause as a share of the time since the last reply."""
MOST_BYTES = 1 << 26
"""Upper bound on the bytes of the replies to one message: the model's bytes for each of its clients."""
EARLY_SHARE = 0.8
"""Size of a message to train, in units of what each worker would get if the remaining clients were divided equally."""

LEAST_SUMMED = 0.4
"""Kept fractions of a message's clients, added up, from which a worker's sum takes less processor time than the
updates: encoding, Ray, decoding and adding included."""


class Arrivals:
    """Arrivals in the grid of a simulation: the messages that have been answered."""

    def __init__(self) -> None:
        self._names: SimpleQueue[str] = SimpleQueue()

    def put(self, name: str) -> None:
        """Note that the message with this id of Flower's has been answered."""
        self._names.put(name)

    def take(self, timeout_s: float) -> set[str]:
        """The messages that have been answered since the last call; it waits for one. Empty after the timeout."""
        names = set[str]()
        with suppress(Empty):
            names.add(self._names.get(timeout=timeout_s))
            while True:
                names.add(self._names.get_nowait())
        return names


class FlowerGrid:
    """Federation of the nodes of Flower's grid.

    Parameters
    ----------
    timeouts : timeouts of the clients' answers; None: no timeout
    pool : in a simulation, number of workers among which clients are divided; 0: one message to each client
    pools_training : True if messages to train are pooled too
    arrived : arrivals of replies; None: the grid is polled
    names : names of the model's arrays; by default their places
    """

    def __init__(
        self,
        grid: Grid,
        timeouts: ReplyTimeout | None = None,
        *,
        pool: int = 0,
        pools_training: bool = True,
        arrived: Arrivals | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._names = names
        self._grid, self._timeouts, self._arrived = grid, timeouts, arrived
        self._pool, self._pools_training = pool, pools_training
        self._alone: set[str] = set()
        """Nodes that failed twice, the second time with a message of their own. They keep getting such messages."""
        self._open: dict[str, tuple[Message, Wait]] = {}
        """Messages of `send` without an answer, by Flower's id."""
        self._sent: tuple[SentModel, ArrayRecord] | None = None
        self.simulated = pool > 0

    @property
    def run(self) -> bytes:
        """Id of the run."""
        return run_name(self._grid.run.run_id)

    def nodes(self) -> Set[str]:
        """Ids of the nodes that are connected now."""
        return {str(node) for node in self._grid.get_node_ids()}

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Send the messages and wait for the replies. If a message to several clients fails, each of them is asked
        again alone.

        A client that fails again, because it ends its worker or never answers, gets messages of its own from then on.
        """
        if not messages:
            return {}
        kind = messages[0].instruction.message_type
        wait = Wait(messages, until, self._timeouts)
        unanswered, sums = self._push(self._parts(messages, kind), wait), CohortSum()
        news_s = wait.elapsed_s
        while wait.left_s:
            failed: list[Message] = []
            replies = self._pull(self._answered_of(unanswered, wait), wait)
            for reply in replies:
                part = unanswered.pop(self._answered(reply, unanswered), [])
                if not part:  # a second reply
                    continue
                if reply.has_error() and len(part) > 1:
                    failed += part
                    continue
                if reply.has_error() and self.simulated:
                    self._alone |= {message.node for message in part}
                answers = [self._answer(message, reply, self._by_name(part), wait.elapsed_s) for message in part]
                if self.simulated:  # a deployed client answers for itself alone
                    answers = added_up(reply, answers, sums)
                for message, answer in zip(part, answers, strict=True):
                    wait.add(message.node, answer)
            unanswered |= self._push([[message] for message in failed], wait)
            if replies:
                news_s = wait.elapsed_s
            elif self._arrived is None:
                _pause(wait, news_s)
        return wait.result()

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages, one to a node, and do not wait: `receive` returns their answers."""
        for message in messages:
            wait = Wait([message], ALL, self._timeouts)
            [name] = self._push([[message]], wait) or [f"unavailable {message.node}"]
            self._open[name] = message, wait

    def receive(self) -> Answers:
        """The answers to messages of `send` that have come; it waits for one. Empty if no message is unanswered."""
        answers, begun = dict[str, Answer](), Wait([message for message, _ in self._open.values()], ALL)
        while self._open and not answers:
            unanswered = {name: [message] for name, (message, wait) in self._open.items() if wait.missing}
            for reply in self._pull(unanswered, begun):
                message, wait = self._open.get(self._answered(reply, unanswered), (None, begun))
                if message is not None and wait.missing:  # a second reply is ignored
                    wait.add(message.node, self._answer(message, reply, False, wait.elapsed_s))
            answers |= begun.answers
            for name, (message, wait) in list(self._open.items()):
                if message.node in begun.answers or not wait.left_s:
                    answers = wait.result() | answers
                    del self._open[name]
            if not answers:
                _pause(begun, 0.0)
        return answers

    def _push(self, parts: list[list[Message]], wait: Wait) -> dict[str, list[Message]]:
        """Send a message for each part; return message id -> part. A node that is not connected counts as failed."""
        sent = [
            FlowerMessage(self.content(part), dst_node_id=self._receiver(part), message_type=self.message_type(part))
            for part in parts
        ]
        taken = set(self._grid.push_messages(sent)) if sent else set()
        unanswered: dict[str, list[Message]] = {}
        for part, message in zip(parts, sent, strict=True):
            if message.metadata.message_id in taken:
                unanswered[message.metadata.message_id] = part
                continue
            for gone in part:
                wait.add(gone.node, NodeError(gone.node, "Error: Node Unavailable"))
        return unanswered

    def _answered_of(self, unanswered: dict[str, list[Message]], wait: Wait) -> dict[str, list[Message]]:
        """The parts whose messages have been answered, which may be all of them.

        A pull compares each message with all that are stored. In a simulation it takes only what has arrived, and all
        after a pause, in which Flower may have found that a node is gone.
        """
        if self._arrived is None:
            return unanswered
        names = self._arrived.take(min(wait.left_s, LONGEST_PAUSE_S))
        return {name: unanswered[name] for name in names & unanswered.keys()} if names else unanswered

    def _pull(self, unanswered: dict[str, list[Message]], wait: Wait) -> list[FlowerMessage]:
        """The replies that have arrived. If Flower cannot read a reply, its clients have failed."""
        if not unanswered:
            return []
        try:
            return list(self._grid.pull_messages(list(unanswered)))
        except Exception as error:
            if self.simulated:
                raise
            LOGGER.warning("A reply cannot be read (%s); fedsel now requests the replies one by one.", one_line(error))
        replies: list[FlowerMessage] = []
        for name in list(unanswered):
            try:
                replies += self._grid.pull_messages([name])
            except Exception as error:  # noqa: BLE001 - any exception from a client's reply is that client's failure
                for message in unanswered.pop(name):
                    wait.add(message.node, NodeError(message.node, f"its reply cannot be read: {error}"))
        return replies

    def _answered(self, reply: FlowerMessage, unanswered: Mapping[str, list[Message]]) -> str:
        """Id of the message that a reply answers. A mod's error may answer its own app's reply, which has no id yet."""
        metadata = reply.metadata
        if metadata.reply_to_message_id or not reply.has_error():
            return metadata.reply_to_message_id
        nodes = (metadata.src_node_id, metadata.dst_node_id)
        return next((name for name, part in unanswered.items() if self._receiver(part) in nodes), "")

    def _parts(self, messages: Sequence[Message], kind: str) -> list[list[Message]]:
        """Messages grouped into parts with one model each; one message of Flower's carries each part."""
        pooled, together = self._pools(kind), dict[int, list[Message]]()
        for message in messages:
            if pooled and message.node not in self._alone:
                together.setdefault(id(message.model), []).append(message)
        alone = [[message] for message in messages if not pooled or message.node in self._alone]
        return [*(part for group in together.values() for part in self._divided(group, kind)), *alone]

    def _pools(self, kind: str) -> bool:
        """True if one message may carry the instructions of this kind for several clients."""
        return self._pool > 0 and (kind == "evaluate" or (kind == "train" and self._pools_training))

    def _divided(self, messages: list[Message], kind: str) -> Iterable[list[Message]]:
        """Parts of the messages that may be pooled."""
        if kind == "evaluate":
            return [messages[start :: self._pool] for start in range(min(self._pool, len(messages)))]
        return divided(messages, self._pool)

    def _receiver(self, part: Sequence[Message]) -> int:
        """Flower's id of the node that gets the message to the clients of `part`."""
        return int(part[0].node)

    def _by_name(self, part: Sequence[Message]) -> bool:
        """True if the message to the clients of `part` states their partition ids."""
        return len(part) > 1 or summed(part)

    def message_type(self, part: Sequence[Message]) -> str:
        """Flower's type of a message to the clients of `part`."""
        return part[0].instruction.message_type

    def content(self, part: Sequence[Message]) -> RecordDict:
        """Content of a message to the clients of `part`."""
        arrays = self._arrays(part[0].model) if part[0].model.arrays else None
        if not self._by_name(part):
            return question(part[0].instruction, arrays)
        instructions: dict[int, Instruction] = {cast(int, message.client): message.instruction for message in part}
        if not summed(part):
            instructions |= {
                client: replace(asked, weight=0.0)
                for client, asked in instructions.items()
                if isinstance(asked, TrainInstruction)
            }
        return question(instructions, arrays)

    def _arrays(self, model: SentModel) -> ArrayRecord:
        """The model as a record, which all messages with this model share."""
        if self._sent is None or self._sent[0] is not model:
            self._sent = model, self.named(model)
        return self._sent[1]

    def named(self, model: SentModel) -> ArrayRecord:
        """The model as a record."""
        names = self._names or list(map(str, range(len(model.arrays))))
        arrays = zip(names, model.arrays, model.tensors, strict=False)
        return ArrayRecord(
            {name: Array(str(array.dtype), array.shape, "numpy.ndarray", tensor) for name, array, tensor in arrays}
        )

    def failure(self, message: Message, reason: str) -> Answer:
        """The answer of a client whose reply is an error, with Flower's `reason` for it."""
        return NodeError(message.node, own_words(reason))

    def _answer(self, message: Message, reply: FlowerMessage, of_client: bool, arrived_s: float) -> Answer:
        if reply.has_error():
            return self.failure(message, reply.error.reason or f"error code {reply.error.code}")
        return self.reply(reply.content, message, of_client, arrived_s)

    def reply(self, content: RecordDict, message: Message, of_client: bool, arrived_s: float) -> Answer:
        """The answer to `message` in the content of a reply. It is under the client's name if `of_client`.

        Raises MachineFault if the machine of a simulation fails, which has too little memory or disk.
        """
        client = message.client if of_client else None
        numbers = fedsel_config(content, client)
        if numbers is None:
            return NodeError(message.node, "its reply is not from fedsel: server and clients must run the same app")
        if MACHINE_FAULT in numbers and self.simulated:
            raise MachineFault(f"{numbers[MACHINE_FAULT]!s} Then continue the run with --resume.")
        if MACHINE_FAULT in numbers or ERROR in numbers:
            return NodeError(message.node, str(numbers.get(MACHINE_FAULT, numbers.get(ERROR))))
        # Not `array_records`, which goes through the records of all clients each time.
        arrays = content.get(record_name(ARRAYS, client))
        tensors = [array.data for array in arrays.values()] if isinstance(arrays, ArrayRecord) else []
        return Reply.of(numbers, tensors, arrived_s)


def _pause(wait: Wait, news_s: float) -> None:
    """Wait for a tenth of the time since the last reply."""
    pause_s = min(max(PAUSE_SHARE * (wait.elapsed_s - news_s), SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    time.sleep(min(pause_s, wait.left_s))


def summed(part: Sequence[Message]) -> bool:
    """True if a worker adds up the updates of these clients."""
    asked = (message.instruction for message in part)
    kept = (each.kept_fraction for each in asked if isinstance(each, TrainInstruction) and each.weight)
    return sum(kept) >= LEAST_SUMMED


def added_up(reply: FlowerMessage, answers: list[Answer], sums: CohortSum) -> list[Answer]:
    """The answers in a message. Its sums over some of its clients are added to `sums`, which the answers then share."""
    arrays = {} if reply.has_error() else read_sums(reply.content)
    if not arrays:
        return answers
    inside = [isinstance(answer, Reply) and "payload_bytes" in answer.metrics for answer in answers]
    sums.merge(CohortSum.of_arrays(arrays, sum(inside)))
    return [
        replace(answer, sums=sums) if added and isinstance(answer, Reply) else answer
        for answer, added in zip(answers, inside, strict=True)
    ]


def own_words(reason: str) -> str:
    """The text of a client's exception in Flower's words about it, or the name of its class if it has no text.

    Flower writes <class 'module.Name'>:<'text'>. On Ray, the text begins with a traceback.
    """
    kind, between, text = reason.removeprefix("<class '").removesuffix("'>").partition("'>:<'")
    if not between:
        return reason
    return text.rpartition("occurred. Message: ")[2].strip() or kind.rpartition(".")[2]


def divided(messages: Sequence[Message], pool: int) -> Iterator[list[Message]]:
    """Divide messages to train: a part has `EARLY_SHARE`/`pool` of those left, and at most `MOST_BYTES` of updates.

    The small parts at the end let the workers finish at about the same time, for any local work of the clients.
    """
    left = list(messages)
    while left:
        size = min(math.ceil(EARLY_SHARE * len(left) / pool), most_replies(left[0]))
        yield left[:size]
        left = left[size:]


def most_replies(message: Message) -> int:
    """Upper bound on the clients that one message may ask to train as this one does; a worker's sum needs none."""
    asked = message.instruction
    if isinstance(asked, TrainInstruction) and asked.weight:
        return sys.maxsize
    return max(MOST_BYTES // max(message.model.nbytes, 1), 1)
