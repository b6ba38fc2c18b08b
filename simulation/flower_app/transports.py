"""Transports of a user's Flower app: its clients are reached through Flower's grid or its legacy client manager.

A message has the user's part and fedsel's part: two records of the Message API, or one config in which fedsel's keys
have a prefix (see `fedsel_app.messages.user_apps`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.common import Code, EvaluateRes, FitRes, GetPropertiesRes
from flwr.server.client_manager import ClientManager
from flwr.serverapp import Grid

from fedsel_app.messages.instructions import Instruction
from fedsel_app.messages.records import CONTROL, FEDSEL, config_record
from fedsel_app.messages.scalars import Config
from fedsel_app.messages.user_apps import EVALUATION_LOSSES, embed
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.wiring.reply_event import is_simulated
from simulation.flower_app.settings import AppOptions
from strategies.round.federation import Answer, Message, Reply
from strategies.round.flower_grid import FlowerGrid
from strategies.round.flower_manager import FlowerManager

NO_QUERY = "No query function registered"
"""Part of the error of a Flower client app that answers no queries, so it is not one of fedsel's client apps."""

SCORES = ("accuracy", "eval_acc", "eval-acc", "eval_accuracy", "acc", "test_acc")
"""Usual names of the metric with the score of an evaluation in users' clients."""


class UserManager(FlowerManager):
    """Federation of a user's `client_fn` clients, behind Flower's legacy client manager."""

    def __init__(self, manager: ClientManager, timeouts: ReplyTimeout, options: AppOptions) -> None:
        super().__init__(manager, timeouts)
        self._of_type = {"train": options.fit_config, "evaluate": options.evaluate_config}

    @property
    def in_simulation(self) -> bool:
        """True if Flower simulates the nodes."""
        return any(is_simulated(getattr(proxy, "grid", None)) for proxy in self._manager.all().values())

    def config(self, instruction: Instruction) -> Config:
        """The user's config of the round, and fedsel's instruction with the prefix in its keys."""
        users = self._of_type.get(instruction.message_type) or {}
        if callable(users):
            users = users(getattr(instruction, "server_round", 0))
        return embed(instruction.to_config(), users)

    def reply(self, result: GetPropertiesRes | FitRes | EvaluateRes, arrived_s: float) -> Reply:
        """The reply in a result. A client without `get_properties` gives an empty reply and has not failed."""
        if isinstance(result, GetPropertiesRes) and result.status.code == Code.GET_PROPERTIES_NOT_IMPLEMENTED:
            return Reply()
        return super().reply(result, arrived_s)


class UserGrid(FlowerGrid):
    """Federation of a user's `@app.train()` clients, behind Flower's grid.

    Parameters
    ----------
    names : names of the model's arrays, in their order
    configs : message type -> the user's ConfigRecord
    """

    def __init__(
        self,
        grid: Grid,
        timeouts: ReplyTimeout,
        names: Sequence[str],
        configs: Mapping[str, ConfigRecord],
        options: AppOptions,
    ) -> None:
        super().__init__(grid, timeouts, names=names)
        self._configs, self._options = configs, options

    @property
    def in_simulation(self) -> bool:
        """True if Flower simulates the nodes."""
        return is_simulated(self._grid)

    def content(self, part: Sequence[Message]) -> RecordDict:
        """The user's arrays and config, and fedsel's instruction in a separate record."""
        [message] = part
        instruction = message.instruction
        content = RecordDict({FEDSEL: config_record(instruction.to_config())})
        if message.model.arrays:
            content[self._options.arrayrecord_key] = self._arrays(message.model)
            if len(message.model.arrays) > len(self._names):
                content[CONTROL] = ArrayRecord([message.model.arrays[-1]])
            users = ConfigRecord(dict(self._configs.get(instruction.message_type, {})))
            users.setdefault("server-round", getattr(instruction, "server_round", 0))
            content[self._options.configrecord_key] = users
        return content

    def failure(self, message: Message, reason: str) -> Answer:
        """The answer for an error. A client app that answers no queries gives an empty reply and has not failed."""
        if message.instruction.message_type == "query" and NO_QUERY in reason:
            return Reply()
        return super().failure(message, reason)

    def reply(self, content: RecordDict, message: Message, of_client: bool, arrived_s: float) -> Reply:
        """The reply: the user's metrics, and fedsel's metrics with the prefix in their keys."""
        users: dict[str, Any] = {}
        for record in content.metric_records.values():
            users |= dict(record)
        own: dict[str, Any] = dict(content.config_records.get(FEDSEL, {}))
        arrays = content.array_records.get(self._options.arrayrecord_key, ArrayRecord())
        return Reply(
            embed(own, users | self.score_of(users)),
            [array.data for array in arrays.values()],
            users.get(self._options.weighted_by_key, own.get("examples", 0)),
            own["loss"] if "loss" in own else self.loss_of(users),
            arrived_s,
        )

    def loss_of(self, metrics: Mapping[str, Any]) -> float:
        """The loss among the metrics of an evaluation; NaN if there is none."""
        return _first(metrics, self._options.loss_key, EVALUATION_LOSSES)

    def score_of(self, metrics: Mapping[str, Any]) -> Config:
        """The score among the metrics of an evaluation, under its name in the records; empty if there is none."""
        score = _first(metrics, self._options.score_key, SCORES)
        return {} if math.isnan(score) else {"accuracy": score}


def _first(metrics: Mapping[str, Any], name: str | None, usual: Sequence[str]) -> float:
    """The metric `name`, or without a name the first metric with one of the `usual` names; NaN if there is none."""
    names = usual if name is None else [name]
    return next((float(metrics[name]) for name in names if isinstance(metrics.get(name), int | float)), math.nan)
