"""Clients under way: rounds of a server that does not wait for its cohort, buffered or asynchronous.

A round goes from one step of the server to the next. It fills the free places of the cohort with the method's own
selection among the idle clients, and waits on the clock for as many replies as the setting `waiting` says. The clients
that are still under way then train on, from the model that they were sent. See `strategies.aggregation.staleness` for
the papers.

The order of replies is that of the clock, so it does not depend on the machines that train. A client is asked to train
when the clock comes to the earliest possible end of somebody's training; all that are under way are then asked at the
same time. A resumed run asks them again.
"""

import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.network.clock import Event, Transfer
from fedsel_app.network.links import SimulatedLinks, Work
from fedsel_app.wire.codec import WireError
from strategies.checkpoint import Arrays
from strategies.opened import Dispatch, OpenRound
from strategies.roster import Ints, Selection
from strategies.round.federation import Answer, Message, NodeError, SentModel, Until
from strategies.round.replies.deadline import DROPPED, left, simulated_dropouts
from strategies.round.replies.training import Decoded, Replies, ReplyResult
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")
WINDOW, FIRST = 10, 2
"""Replies for each place of the cohort, among which no client gives more than its share; and of the first replies."""
SelectionRow = Mapping[str, Any]
"""Selection of one client: its value in each array of a `Selection`, those of the components in a dict."""
Learn = Callable[[OpenRound, Selection, Replies], None]
"""The server's step and everything that learns from it."""


@dataclass(frozen=True, eq=False)
class Sent:
    """What a client was sent, and under which conditions.

    Attributes
    ----------
    selection : its part of the selection
    model : the model from which it starts, as it was sent
    speeds : its seconds a step, downlink and uplink in bits/s
    """

    instruction: TrainInstruction
    selection: SelectionRow
    model: SentModel
    speeds: tuple[float, float, float]

    @cached_property
    def row(self) -> dict[str, Any]:
        """All but the model, as JSON can hold it."""
        return {"instruction": self.instruction.to_config(), "selection": self.selection, "speeds": self.speeds}


class UnderWay(ABC):
    """Clients under way: those that train, and what they were sent.

    Attributes
    ----------
    clients : client -> what it was sent, of all that are under way
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._results: dict[int, ReplyResult] = {}
        """Decoded replies of clients that have trained, in the order in which they came."""
        self.clients: dict[int, Sent] = {}
        self._given: list[int] = []
        """The clients of the last replies."""
        self._rested = set[int]()
        """The clients that did not get a place before the last round, because they had given their share."""

    def resting(self, idle: Ints, number: int) -> list[int]:
        """The clients of `idle` that have given their share of the last replies, and wait in round `number`.

        They wait only as long as another client is under way or idle. If there are still fewer than `FIRST` replies for
        each place of the cohort, that many count, so that a quick client does not give all of the first ones.
        """
        cohort, share = self._context.run.cohort, self._context.waiting.max_client_share
        replies = max(len(self._given), FIRST * cohort)
        most = math.ceil(round(share * replies / cohort, 9))
        given = Counter(self._given)
        resting = [client for client in idle.tolist() if 0 < most < replies and given[client] >= most]
        if not self.clients and len(resting) == idle.size:
            return []
        for client in set(resting) - self._rested:
            LOGGER.warning(
                "Round %d: client %d has given %d of the last %d replies, and waits: see 'max-client-share'.",
                *(number, client, given[client], len(self._given)),
            )
        self._rested = set(resting)
        return resting

    def take_turn(self, opened: OpenRound, dispatch: Dispatch | None, learn: Learn) -> None:
        """Send the model to the cohort's new clients, and step the server after the next replies.

        The end of the round, `learn`, gets the selection of those whose replies or failures have come.
        """
        record, wanted = opened.record, self._context.waiting.wanted
        record.cohort = min(wanted, len(self.clients) + record.cohort)
        if dispatch is not None:
            self._send(opened, dispatch)
        arrivals, arrived_s = self._await(opened, wanted)
        results = dict(sorted(arrivals.items()))
        self._given = [*self._given, *arrived_s][-WINDOW * self._context.run.cohort :]
        sent = {client: self.clients.pop(client) for client in results}
        if results:
            instructions = {client: one.instruction for client, one in sent.items()}
            starts = {client: one.model.arrays[0] for client, one in sent.items()}
            replies = opened.reader.take(results, instructions, opened.info.number, starts)
            selection = united([one.selection for one in sent.values()])
            learn(opened, selection, replies)
            record.staleness = replies.staleness.tolist()
            record.arrived_s = [arrived_s[client] for client in replies.clients.tolist()]
        record.under_way = len(self.clients)
        self._end(opened)

    @abstractmethod
    def _await(self, opened: OpenRound, wanted: int) -> tuple[dict[int, ReplyResult], dict[int, float]]:
        """Wait for `wanted` replies, or until no client is under way.

        Returns the replies and the failures, and the seconds from the begin of the round until each reply arrived.
        """

    @abstractmethod
    def _end(self, opened: OpenRound) -> None:
        """Record the seconds of the round."""

    def _send(self, opened: OpenRound, dispatch: Dispatch) -> None:
        """Send the model to new clients."""
        roster, ids = opened.roster, dispatch.selection.clients
        columns = (roster.step_s[ids], roster.downlink_bits_per_s[ids], roster.uplink_bits_per_s[ids])
        speeds = zip(*(column.tolist() for column in columns), strict=True)
        rows = zip(dispatch.instructions.items(), selection_rows(dispatch.selection), speeds, strict=True)
        for (client, instruction), selection, own in rows:
            self.clients[client] = Sent(instruction, selection, opened.sent_to_train, own)

    def _messages(self, opened: OpenRound, clients: Iterable[int]) -> list[Message]:
        """The messages to these clients, as far as they are connected."""
        there, asked = opened.clients.nodes, {client: self.clients[client] for client in clients}
        return [
            Message(there[client], sent.instruction, sent.model, client)
            for client, sent in asked.items()
            if client in there
        ]

    def _decoded(self, opened: OpenRound, answers: dict[int, Answer], clients: Iterable[int]) -> dict[int, ReplyResult]:
        """The answers of these clients, decoded; a simulation drops some of them."""
        instructions = {client: self.clients[client].instruction for client in clients}
        for client, asked in instructions.items():
            if simulated_dropouts(np.array([client]), asked.server_round, self._context):
                answers[client] = NodeError("", DROPPED)
        return opened.reader.decode_each(answers, instructions)

    def _stale(self, opened: OpenRound, client: int) -> ReplyResult | None:
        """The error of a reply that is too old in this round."""
        steps = opened.info.number - self.clients[client].instruction.server_round
        if 0 < self._context.waiting.max_staleness < steps:
            return WireError(f"the server has made {steps} steps since its update began: see 'max-staleness'")
        return None

    def last_aggregated(self) -> dict[int, int]:
        """Client -> the round of its last aggregated update before it was sent to train."""
        return {client: sent.instruction.last_aggregated for client, sent in self.clients.items()}

    def state(self) -> Arrays:
        """The clients under way, with the models from which they start."""
        models = list({id(sent.model): sent.model for sent in self.clients.values()}.values())
        places = {id(model): place for place, model in enumerate(models)}
        rows = [sent.row | {"client": client, "model": places[id(sent.model)]} for client, sent in self.clients.items()]
        arrays = {
            f"model {place}/{k}": array for place, model in enumerate(models) for k, array in enumerate(model.arrays)
        }
        return arrays | {"json": np.array(json.dumps({"clients": rows, "given": self._given} | self._told()))}

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""
        saved = json.loads(str(state["json"]))
        models: dict[int, SentModel] = {}
        self._given = saved.get("given", [])
        for row in saved["clients"]:
            place = int(row["model"])
            arrays = [array for name, array in sorted(state.items()) if name.startswith(f"model {place}/")]
            models.setdefault(place, SentModel(tuple(arrays)))
            instruction = TrainInstruction.from_config(row["instruction"])
            self.clients[int(row["client"])] = Sent(instruction, row["selection"], models[place], tuple(row["speeds"]))

    def _told(self) -> dict[str, Any]:
        """What else the state has, as JSON can hold it."""
        return {}


class Simulated(UnderWay):
    """Clients under way on the simulated clock."""

    def __init__(self, context: RunContext, links: SimulatedLinks) -> None:
        super().__init__(context)
        self._links, self._clock = links, links.clock()
        self._uploads: dict[int, Transfer] = {}
        self._timed = set[int]()
        """Clients whose computing time is known from their training. After a restart they train again."""

    def _send(self, opened: OpenRound, dispatch: Dispatch) -> None:
        """Send the model to new clients. Their training takes at least the time of their local steps."""
        for client, download, compute_s, _ in self._links.transfers(dispatch.work):
            self._clock.send(client, opened.delay_s, download, compute_s)
        super()._send(opened, dispatch.losing(self._clock.leaving()))

    def _await(self, opened: OpenRound, wanted: int) -> tuple[dict[int, ReplyResult], dict[int, float]]:
        """Advance the clock until `wanted` replies have arrived, or no client is under way."""
        arrived, arrived_s = dict[int, ReplyResult](), dict[int, float]()
        failed = self._train(opened, self._timed - self._results.keys())
        while self._clock.trips and len(arrived) < wanted:
            if self._clock.next.event is Event.COMPUTED and self._clock.next.client not in self._timed:
                failed |= self._train(opened, self._clock.trips.keys() - self._timed)
                continue
            happening, trip = self._clock.pop()
            client = happening.client
            if happening.event is Event.LEFT:
                failed[client] = WireError(left(client, happening.time_s - trip.begun_s)["reason"])
            elif happening.event is Event.ARRIVED and (stale := self._stale(opened, client)) is not None:
                failed[client] = stale
            elif happening.event is Event.ARRIVED:
                arrived[client], arrived_s[client] = self._results[client], happening.time_s
            else:
                self._clock.upload(client, self._uploads[client])
        for client in arrived | failed:
            self._results.pop(client, None)
            self._uploads.pop(client, None)
            self._timed.discard(client)
        return arrived | failed, arrived_s

    def _end(self, opened: OpenRound) -> None:
        record = opened.record
        record.round_s = max(record.round_s, self._clock.now_s)
        self._clock.forward(record.round_s)

    def _train(self, opened: OpenRound, clients: Set[int]) -> dict[int, ReplyResult]:
        """Let clients train, each from the model that it was sent. Returns those that fail."""
        asked = sorted(clients)
        if not asked:
            return {}
        answers = opened.clients.send(self._messages(opened, asked), Until())
        results = self._decoded(opened, answers, asked)
        failed: dict[int, ReplyResult] = {
            client: one for client, one in results.items() if not isinstance(one, Decoded)
        }
        for client in failed:
            self._clock.drop(client)
        self._results |= {client: one for client, one in results.items() if client not in failed}
        self._time(opened, [client for client in results if client not in failed])
        return failed

    def _time(self, opened: OpenRound, clients: list[int]) -> None:
        """Tell the clock what the training of clients has taken."""
        sent = [self.clients[client] for client in clients]
        decoded = [one for client in clients if isinstance(one := self._results[client], Decoded)]
        ids, nothing = np.array(clients, np.int64), np.zeros(len(clients), np.int64)
        replies = Replies(ids, tuple(decoded), nothing, (), [])
        most = np.array(
            [opened.reader.steps(client, one.instruction)[1] for client, one in zip(clients, sent, strict=True)]
        )
        step_s, downlinks, uplinks = np.array([one.speeds for one in sent], np.float64).reshape(-1, 3).T
        compute_s = step_s * np.minimum(replies.work_steps, most)
        work = Work(ids, compute_s, downlinks, uplinks, 0, replies.uplink_bytes, replies.uplink_value_bytes)
        stages = list(self._links.transfers(work))
        self._uploads |= {client: upload for client, _, _, upload in stages}
        self._clock.correct({client: seconds for client, _, seconds, _ in stages if client not in self._timed})
        self._timed |= set(clients)

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""
        super().load_state(state)
        saved = json.loads(str(state["json"]))
        self._timed = set(map(int, saved["timed"]))
        self._clock.load_rows(saved["clock"])

    def _told(self) -> dict[str, Any]:
        return {"timed": sorted(self._timed), "clock": self._clock.rows()}


class Deployed(UnderWay):
    """Clients under way in a deployment: replies are taken as they come."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._asked = set[int]()
        """Clients that this process has asked. After a restart all are asked again."""
        self._come_s: dict[int, float] = {}
        """When the reply of each client came, by this process's clock."""

    def _await(self, opened: OpenRound, wanted: int) -> tuple[dict[int, ReplyResult], dict[int, float]]:
        """Ask the clients that have not been asked, and wait for `wanted` replies, or until no client is under way."""
        new = self.clients.keys() - self._asked
        messages = self._messages(opened, sorted(new))
        opened.clients.dispatch(messages)
        self._asked |= {message.client for message in messages if message.client is not None}
        failed: dict[int, ReplyResult] = {
            client: WireError("it is not connected") for client in sorted(new - self._asked)
        }
        come = dict[int, Answer]()
        while True:
            self._come_s |= dict.fromkeys(come, time.perf_counter())
            for client, one in (self._results | self._decoded(opened, come, come)).items():
                reply = self._stale(opened, client) or one
                (self._results if isinstance(reply, Decoded) else failed)[client] = reply
            self._results = {client: one for client, one in self._results.items() if client not in failed}
            if len(self._results) >= wanted or not (come := dict(opened.clients.arrivals())):
                break
        arrived = {client: self._results.pop(client) for client in list(self._results)[:wanted]}
        self._asked -= (arrived | failed).keys()
        return arrived | failed, {client: self._come_s[client] - opened.started_s for client in arrived}

    def _end(self, opened: OpenRound) -> None:
        opened.record.round_s += time.perf_counter() - opened.started_s


def under_way(context: RunContext) -> UnderWay | None:
    """The clients under way of a run, on the clock of its links; None if the server waits for its cohort."""
    if context.waiting.waiting == "synchronous":
        return None
    return Simulated(context, context.links) if isinstance(context.links, SimulatedLinks) else Deployed(context)


OF_A_CLIENT = ("clients", "scores", "weights", "kept_fractions", "learning_rates", "local_steps", "local_epochs")
"""Fields of a selection with a value for each client."""


def selection_rows(selection: Selection) -> list[SelectionRow]:
    """The selection of each client alone, as JSON can hold it."""
    columns = {name: values.tolist() for name in OF_A_CLIENT if (values := getattr(selection, name)) is not None}
    components = {name: values.tolist() for name, values in selection.components.items()}
    return [
        {name: values[place] for name, values in columns.items()}
        | {"components": {name: values[place] for name, values in components.items()}}
        | {"normalise": selection.normalise}
        for place in range(selection.clients.size)
    ]


def united(rows: Sequence[SelectionRow]) -> Selection:
    """One selection of all clients of the `rows`, which ascend. A component that a row lacks is 0 there."""
    given = {name: np.array([row[name] for row in rows]) for name in OF_A_CLIENT if all(name in row for row in rows)}
    names = dict.fromkeys(name for row in rows for name in row["components"])
    components = {name: np.array([row["components"].get(name, 0.0) for row in rows], np.float64) for name in names}
    return Selection(**given, components=components, normalise=all(row["normalise"] for row in rows))
