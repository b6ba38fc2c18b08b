"""Intermediate round of ISP: clients train and test candidate models, and nothing of it is kept."""

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from flwr.common import FitIns
from flwr.server.client_proxy import ClientProxy
from numpy.typing import NDArray

from fedsel_app.messages import LocalTestAnswer, LocalTestInstruction
from fedsel_app.network.clock import FORWARD_STEPS, RoundWork
from fedsel_app.records.schema import SearchRecord
from strategies.aggregation.server_state import ServerState, Step
from strategies.roster import Ints, Roster, RoundInfo, Selection
from strategies.round import connections
from strategies.round.replies import Replies, ReplyCollector
from strategies.round.round_plan import Probe
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")


def restrict_view(roster: Roster, available: Ints) -> Roster:
    """A view of `roster` in which only these clients are available; it shares the other arrays."""
    view = copy.copy(roster)
    view.available = np.zeros(roster.available.size, bool)
    view.available[available] = True
    return view


@dataclass
class IntermediateRound:
    """Intermediate round of ISP: clients train and test candidate models before the cohort's size is known.

    Neither the clients nor the server keep anything of it; what it costs is added to the round's record.

    Attributes
    ----------
    probe : the loss of every available client, where the method needs losses
    select, candidates : the wrapped method's own rules
    instruct : a selection -> instructions to train after which clients forget the training
    parameters, buffers : the global model
    costs : number of the round's record -> what the intermediate round adds to it
    record : what was searched and found, for the records
    """

    round_info: RoundInfo
    context: RunContext
    roster: Roster
    probe: Probe
    select: Callable[[Roster, RoundInfo, int, np.random.Generator], Selection]
    candidates: Callable[[Roster, RoundInfo, int, np.random.Generator], Ints]
    instruct: Callable[[Selection], list[tuple[ClientProxy, FitIns]]]
    clients: connections.ConnectedClients
    collector: ReplyCollector
    server: ServerState
    parameters: NDArray[np.float32]
    buffers: NDArray[np.float32]
    costs: dict[str, float] = field(default_factory=dict)
    record: SearchRecord = field(default_factory=SearchRecord)

    def draw(
        self, available: Ints, count: int, candidates_rng: np.random.Generator, select_rng: np.random.Generator
    ) -> Selection:
        """The method's own selection of `count` of the `available` clients, which sees its own candidates' losses."""
        view = restrict_view(self.roster, available)
        candidates = self.candidates(view, self.round_info, count, candidates_rng)
        view.losses = self.probe.losses_of(candidates)
        return self.select(view, self.round_info, count, select_rng)

    def train(self, selection: Selection) -> Replies:
        """The clients' updates from the global model; the clients' own states stay as they are."""
        instructions = self.instruct(selection)
        answers = self.clients.train(instructions)
        for client, answer in answers.items():
            if isinstance(answer, Exception):
                LOGGER.warning(
                    "Round %d: client %d failed the intermediate round: %s", self.round_info.number, client, answer
                )
        answered = {client: answer for client, answer in answers.items() if not isinstance(answer, Exception)}
        replies = self.collector.collect(answered, selection.clients, self.round_info.number)
        work = replies.work(self.roster, np.zeros(0))
        self.record["failures"] = replies.failures
        self._charge(
            round_s=self.context.links.round_seconds(work, 0.0),
            uplink_bytes=int(replies.uplink_bytes.sum()),
            uplink_value_bytes=int(replies.uplink_value_bytes.sum()),
            downlink_bytes=sum(connections.model_bytes(ins.parameters) for _, ins in instructions),
            probe_bytes=connections.SCALAR_BYTES * len(replies.reports) * replies.clients.size,
            exchanges=replies.clients.size,
        )
        return replies

    def preview_step(self, selection: Selection, replies: Replies) -> Step:
        """The server's step if `selection` alone had trained; its clients are among the `replies`."""
        chosen = replies.only(selection.clients)
        return self.server.preview_step(self.parameters, selection, chosen, self.roster.examples)

    def loss(self, parameters: NDArray[np.float32], clients: Ints) -> float:
        """Loss f of a model on the surrogate set, else its mean over the `clients`' test examples; inf if unknown."""
        if self.context.surrogate is not None:
            loss = self.context.surrogate(parameters, self.buffers)
            return loss if np.isfinite(loss) else float("inf")
        model = connections.pack(parameters, self.buffers)
        replies = self.clients.evaluate(clients.tolist(), model, LocalTestInstruction(self.round_info.number))
        tested, slowest_s = [], 0.0
        for client, reply in replies.items():
            if isinstance(reply, Exception):
                LOGGER.warning("Round %d: client %d failed to test: %s", self.round_info.number, client, reply)
                continue
            answer = LocalTestAnswer.from_evaluation(reply.loss, reply.num_examples, reply.metrics)
            tested.append(answer)
            batches = answer.examples / self.context.training.batch_size
            slowest_s = max(slowest_s, float(self.roster.step_s[client]) * batches * FORWARD_STEPS)
        self._charge(
            round_s=self.context.links.round_seconds(_probe_work(slowest_s), 0.0),
            probe_bytes=clients.size * (connections.model_bytes(model) + connections.SCALAR_BYTES),
        )
        return connections.mean_loss(tested)

    def _charge(self, **costs: float) -> None:
        for entry, cost in costs.items():
            self.costs[entry] = self.costs.get(entry, 0) + cost


def _probe_work(probe_s: float) -> RoundWork:
    """Work of a round that consists of one probe, for the clock."""
    nothing, none = np.zeros(0), np.zeros(0, np.int64)
    return RoundWork(nothing, nothing, nothing, none, none, np.array([probe_s]))
