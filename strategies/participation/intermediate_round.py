"""Intermediate round of ISP: clients train and test candidate models, and no state of this training is kept."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.instructions import LocalTestInstruction
from fedsel_app.network.links import FORWARD_STEPS, RoundWork
from fedsel_app.records.schema import RoundRecord
from strategies.aggregation.calibration import average_statistics
from strategies.aggregation.server_state import ServerState, Step
from strategies.method import SelectionMethod
from strategies.roster import Ints, RoundInfo, Selection
from strategies.round import method_checks as checks
from strategies.round.clients import SCALAR_BYTES, ConnectedClients, replies_among
from strategies.round.federation import SentModel, sent_model
from strategies.round.instructions import InstructionBuilder
from strategies.round.probing import Probe
from strategies.round.replies import Replies, ReplyCollector
from strategies.round.reported_values import read_tests, tested_loss


@dataclass
class IntermediateRound:
    """Intermediate round of ISP: clients train and test candidate models before the cohort's size is known.

    Neither the clients nor the server keep any state of it. Its costs are added to those of the round.

    Attributes
    ----------
    probe : the loss of every available client, if the method needs losses
    instructions : writes the train instructions; clients keep no state of this training
    sent : the model that is sent for training
    parameters, buffers : the global model
    record : record of the round
    """

    round_info: RoundInfo
    method: SelectionMethod[Any]
    probe: Probe
    instructions: InstructionBuilder
    sent: SentModel
    clients: ConnectedClients
    collector: ReplyCollector
    server: ServerState
    parameters: NDArray[np.float32]
    buffers: NDArray[np.float32]
    record: RoundRecord

    def draw(
        self, available: Ints, count: int, candidates_rng: np.random.Generator, select_rng: np.random.Generator
    ) -> Selection:
        """The method's own selection of `count` of the `available` clients, with the losses of its own candidates."""
        view = copy.copy(self.method.roster)
        view.available = np.zeros(view.available.size, bool)
        view.available[available] = True
        candidates = checks.candidates(self.method, view, self.round_info, count, candidates_rng)
        view.losses = self.probe.losses_of(candidates)
        return checks.select(self.method, view, self.round_info, count, select_rng)

    def train(self, selection: Selection) -> Replies:
        """The clients' updates from the global model. The clients' states do not change."""
        instructions, _ = self.instructions.instruct(
            selection, self.round_info, keep_state=False, statistics=self.buffers.size > 0
        )
        answers = self.clients.ask(instructions, self.sent)
        answered = replies_among(answers, self.round_info.number, "failed the intermediate round")
        replies = self.collector.collect(answered, instructions)
        record, work = self.record, replies.work(self.method.roster, np.zeros(0))
        record.search = {"failures": replies.failures}
        record.round_s += self.method.context.links.round_seconds(work, 0.0)
        record.uplink_bytes += int(replies.uplink_bytes.sum())
        record.uplink_value_bytes += int(replies.uplink_value_bytes.sum())
        record.downlink_bytes += self.sent.nbytes * len(answers)
        record.probe_bytes += SCALAR_BYTES * len(replies.reports) * replies.clients.size
        record.calibration_bytes += self.buffers.nbytes * len(replies.statistics)
        record.client_updates += replies.clients.size
        return replies

    def preview_step(self, selection: Selection, replies: Replies) -> tuple[Step, NDArray[np.float32]]:
        """The server's step if only `selection` had trained, and its clients' mean BatchNorm statistics, float32 (B,).

        All its clients are among the `replies`.
        """
        chosen, examples = replies.only(selection.clients), self.method.roster.examples
        robust = self.method.context.aggregation.aggregation != "mean"
        buffers = self.buffers
        if chosen.statistics:
            buffers = average_statistics(chosen.statistics, examples[chosen.clients].tolist(), robust=robust)
        return self.server.preview_step(self.parameters, selection, chosen, examples), buffers

    def loss(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32], clients: Ints) -> tuple[float, Ints]:
        """Loss f of a model, inf if unknown, and the clients that tested it.

        It is the loss on the surrogate set, if there is one; no client tests it then. Otherwise it is the mean over the
        test examples of the `clients`.
        """
        context = self.method.context
        if context.surrogate is not None:
            loss = context.surrogate(parameters, buffers)
            return loss if np.isfinite(loss) else float("inf"), np.zeros(0, np.int64)
        model = sent_model(parameters, buffers)
        test = LocalTestInstruction(self.round_info.number)
        replies = self.clients.ask(dict.fromkeys(clients.tolist(), test), model)
        sound = replies_among(replies, self.round_info.number, "failed to test")
        tested, slowest_s = read_tests(sound, context), 0.0
        for client, answer in tested.items():
            batches = answer.examples / context.training.batch_size
            slowest_s = max(slowest_s, float(self.method.roster.step_s[client]) * batches * FORWARD_STEPS)
        nothing, none = np.zeros(0), np.zeros(0, np.int64)
        work = RoundWork(nothing, nothing, nothing, none, none, np.array([slowest_s]))
        self.record.round_s += context.links.round_seconds(work, 0.0)
        self.record.probe_bytes += clients.size * (model.nbytes + SCALAR_BYTES)
        return tested_loss(tested)
