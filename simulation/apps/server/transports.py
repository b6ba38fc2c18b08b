"""Transport of a user's Flower app through Flower's grid.

A message to a client with fedsel's line has the user's record and fedsel's. An unchanged client gets the user's alone,
as from Flower's own strategies.
"""

import logging
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fedsel_app.messages.instructions import ProbeInstruction
from fedsel_app.messages.records import FEDSEL, MACHINE_FAULT, config_record
from fedsel_app.messages.scalars import Scalar
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.wire.codec import WireError
from simulation.apps.client.array_layout import in_order
from simulation.apps.client.messages import (
    ENROL,
    EVALUATION,
    EVALUATION_LOSSES,
    AppTrainInstruction,
    no_loss,
    refuse_endless,
    users_arrays,
    users_records,
)
from simulation.apps.server.settings import AppOptions
from strategies.round.federation import Answer, Message, NodeError, Reply
from strategies.round.flower_grid import FlowerGrid
from strategies.round.simulated_grid import is_simulated

FLOWER_LOGGER = logging.getLogger("flwr")
NO_QUERY = "No query function registered"
"""Part of the error of an unchanged app, to which fedsel's enrolment is unknown."""
SCORES = ("accuracy", "eval_acc", "eval-acc", "eval_accuracy", "acc", "test_acc")
"""Usual names of the metric with the score of an evaluation in users' clients."""


@dataclass(frozen=True, eq=False)
class UserReply(Reply):
    """Reply of a user's client. Its `metrics` are the user's.

    Attributes
    ----------
    numbers : fedsel's numbers, of a client with fedsel's line
    content : the user's own records, without arrays
    """

    numbers: Mapping[str, Scalar] = field(default_factory=dict)
    content: RecordDict = field(default_factory=RecordDict)


@contextmanager
def without_errors_of_unchanged() -> Iterator[None]:
    """Keep out of Flower's log that unchanged apps do not know their enrolment, as simulated nodes log with tracebacks.

    Nothing else tells whether an app has fedsel's line: any message that an unchanged app knows calls the user's code.
    """

    def wanted(record: logging.LogRecord) -> bool:
        return f"{NO_QUERY} with name 'fedsel'" not in str(sys.exception())

    FLOWER_LOGGER.addFilter(wanted)
    try:
        yield
    finally:
        FLOWER_LOGGER.removeFilter(wanted)


class UserGrid(FlowerGrid):
    """Federation of a user's `@app.train()` clients, behind Flower's grid.

    Parameters
    ----------
    names : names of the model's arrays, in their order
    configs : message type -> the user's config for a round

    Attributes
    ----------
    examples_key : name of a client's number of examples
    loss_key : metric of an evaluation that is its loss; empty: the first of the usual names
    unchanged : nodes whose app has no line of fedsel's
    """

    def __init__(
        self,
        grid: Grid,
        timeouts: ReplyTimeout,
        names: Sequence[str],
        configs: Mapping[str, Callable[[int], Mapping[str, Any]]],
        options: AppOptions,
    ) -> None:
        super().__init__(grid, timeouts, names=names)
        self._configs, self._options = configs, options
        self.examples_key, self.loss_key = options.weighted_by_key, options.loss_key or ""
        self.unchanged: Set[str] = frozenset()
        self._losses = EVALUATION_LOSSES if options.loss_key is None else (options.loss_key,)

    @property
    def in_simulation(self) -> bool:
        """True if Flower simulates the nodes."""
        return is_simulated(self._grid)

    def in_order(self, nodes: Collection[str]) -> list[str]:
        """The nodes by ascending id. In a simulation by their registration, which is the order of the partition ids."""
        registered: Mapping[str, str] = {}
        if self.in_simulation:
            state = cast(Any, self._grid).state
            registered = {str(node.node_id): node.registered_at for node in state.get_node_info()}
        return sorted(nodes, key=lambda node: (registered.get(node, ""), int(node)))

    def message_type(self, part: Sequence[Message]) -> str:
        """Flower's type of the message. Enrolment has a type of its own: a client's own query is never called."""
        kind = super().message_type(part)
        return ENROL if kind == "query" else kind

    def content(self, part: Sequence[Message]) -> RecordDict:
        """The user's arrays and config, and a record of fedsel's instruction if the client has fedsel's line."""
        [message] = part
        instruction, content = message.instruction, RecordDict()
        number = getattr(instruction, "server_round", 0)
        if message.model.arrays:
            content[self._options.arrayrecord_key] = self._arrays(message.model)
            content[self._options.configrecord_key] = self._users_config(instruction.message_type, number)
        if message.node not in self.unchanged:
            content[FEDSEL] = config_record(instruction.to_config())
            if isinstance(instruction, AppTrainInstruction) and instruction.measures_loss:
                content[EVALUATION] = self._users_config("evaluate", number)
        return content

    def _users_config(self, message_type: str, server_round: int) -> ConfigRecord:
        """The user's config of the round, with its number, as from Flower's own strategies."""
        return ConfigRecord({**self._configs[message_type](server_round), "server-round": server_round})

    def failure(self, message: Message, reason: str) -> Answer:
        """The answer for an error. An unchanged client gives an empty reply to its enrolment and has not failed."""
        if message.instruction.message_type == "query" and NO_QUERY in reason:
            return UserReply()
        return super().failure(message, reason)

    def reply(self, content: RecordDict, message: Message, of_client: bool, arrived_s: float) -> Answer:
        """The reply. A loss probe that returns no loss has failed."""
        users: dict[str, Any] = {}
        for record in content.metric_records.values():
            users |= dict(record)
        numbers: dict[str, Any] = dict(content.config_records.get(FEDSEL, {}))
        try:
            refuse_endless(content)
            trained = message.instruction.message_type == "train" and MACHINE_FAULT not in numbers
            tensors = self._tensors(content, message) if trained else []
        except WireError as error:
            return NodeError(message.node, str(error))
        loss = numbers["loss"] if "loss" in numbers else self.loss_of(users)
        loss = math.nan if loss is None else loss
        if isinstance(message.instruction, ProbeInstruction) and "loss" not in numbers and math.isnan(loss):
            return NodeError(message.node, no_loss(users, self._losses))
        score, records = score_of(users, self._options.score_key), users_records(content)
        for name in list(records.array_records):
            del records[name]
        return UserReply(
            users if math.isnan(score) else users | {"accuracy": score},
            tensors,
            users.get(self._options.weighted_by_key, numbers.get("examples", 0)),
            loss,
            arrived_s,
            numbers=numbers,
            content=records,
        )

    def _tensors(self, content: RecordDict, message: Message) -> list[bytes]:
        """The arrays of a reply: those of an unchanged client in the order of the model's names.

        Raises WireError without a record of arrays, or if an unchanged client's arrays have other names.
        """
        _, record = users_arrays(content, self._options.arrayrecord_key)
        names = in_order(record, self._names) if message.node in self.unchanged else list(record)
        return [record[name].data for name in names]

    def loss_of(self, metrics: Mapping[str, Any]) -> float | None:
        """The loss among the metrics of an evaluation; None if there is none."""
        return _first(metrics, self._losses)


def score_of(metrics: Mapping[str, Any], key: str | None) -> float:
    """The metric `key`, or without a key the first with a usual name of a score; NaN if there is none."""
    score = _first(metrics, SCORES if key is None else [key])
    return math.nan if score is None else score


def _first(metrics: Mapping[str, Any], names: Sequence[str]) -> float | None:
    """The first metric with one of the `names`; None if there is none."""
    return next((float(metrics[name]) for name in names if isinstance(metrics.get(name), int | float)), None)
