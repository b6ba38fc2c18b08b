"""Round in progress: what its opening found, and what it may ask the clients before its cohort is known."""

import copy
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsel_app.messages.instructions import LocalTestInstruction, TrainInstruction
from fedsel_app.network.links import Work
from fedsel_app.records.schema import RoundRecord
from fedsel_app.secure_sums.statement import Statement
from strategies.aggregation.server_state import ServerState
from strategies.method import SelectionMethod
from strategies.roster import NOBODY, Floats, Ints, Roster, RoundInfo, Selection
from strategies.round import method_checks as checks
from strategies.round.clients import SCALAR_BYTES, ConnectedClients
from strategies.round.federation import Answer, SentModel, Until, sent_model
from strategies.round.instructions import InstructionBuilder
from strategies.round.probing import ClientProber, Probe, evaluation
from strategies.round.replies.bounds import mean_vector
from strategies.round.replies.training import Replies, ReplyReader
from strategies.round.replies.values import read_tests, tested_loss
from strategies.run_context import Model, RunContext


@dataclass(eq=False, kw_only=True)
class OpenRound:
    """Round in progress, from its opening to its record.

    A participation policy may let clients train and test candidate models before the cohort is known (`train`, `loss`).
    Neither the clients nor the server keep any state of it, and its costs are added to those of the round.

    Attributes
    ----------
    info : number of the round
    method : the method that selects
    roster : the clients; those that are connected are available
    context : settings of the run, and the initial model, the links, the test set and the records
    model : the global model at the start of the round
    sent : this model as it is sent for probes
    sent_to_train : this model as it is sent for training, with the control variate of a solver that has one
    record : record of the round
    opened_s : start of the round by the run's clock
    started_s : start of the round by this process's clock, after its clients have enrolled
    label_count_bytes : bytes of the label counts of clients that enrolled in this round
    clients, prober, instructions, reader, server : parts of the run, which outlive the round
    local_epochs : passes of the cohort over its data; 0: those of the training settings
    statistics : True if the cohort sends BatchNorm statistics, whatever the calibration settings say
    """

    info: RoundInfo
    method: SelectionMethod[Any]
    roster: Roster
    context: RunContext
    model: Model
    sent: SentModel
    sent_to_train: SentModel
    record: RoundRecord
    opened_s: float
    started_s: float
    label_count_bytes: int
    clients: ConnectedClients
    prober: ClientProber
    instructions: InstructionBuilder
    reader: ReplyReader
    server: ServerState
    local_epochs: int = 0
    statistics: bool = False
    _probe: Probe | None = field(default=None, init=False)

    @property
    def probed(self) -> bool:
        """True after the round's probe."""
        return self._probe is not None

    @property
    def begun_s(self) -> float:
        """Begin of the training by the run's clock: after the wait for clients, a search, and the probe."""
        return self.opened_s + self.delay_s

    @property
    def delay_s(self) -> float:
        """Seconds from the opening of the round to the begin of the training."""
        probe_s = 0.0 if self._probe is None else float(self._probe.duration_s.max(initial=0.0))
        return self.record.round_s + probe_s

    def probe(self, clients: Ints) -> Probe:
        """Measure the losses and metrics of `clients`, if the method needs any, and observe all links.

        This happens once a round: later calls return the same probe. A client that fails its probe is not available in
        this round.
        """
        if self._probe is None:
            probed = clients if self.method.needs(self.method.config).probed_numbers else NOBODY
            self._probe = self.prober.measure(self.info, probed, self.sent, self.label_count_bytes)
        return self._probe

    def ask(self, dispatch: "Dispatch") -> dict[int, Answer]:
        """Let the cohort train; every client's answer, by ascending id."""
        return self.clients.ask(dispatch.instructions, self.sent_to_train, dispatch.until)

    def draw(
        self, available: Ints, count: int, candidates_rng: np.random.Generator, select_rng: np.random.Generator
    ) -> Selection:
        """The method's own selection of `count` of the `available` clients, with the losses of its own candidates."""
        view = copy.copy(self.roster)
        view.available = np.zeros(view.available.size, bool)
        view.available[available] = True
        candidates = checks.candidates(self.method, view, self.info, count, candidates_rng)
        self.probe(candidates).write(view, candidates)
        return checks.select(self.method, view, self.info, count, select_rng)

    def train(self, selection: Selection) -> Replies:
        """The clients' updates from the global model. The clients' states do not change."""
        instructions, _ = self.instructions.instruct(
            selection, self.info, keep_state=False, statistics=self.model.buffers.size > 0
        )
        answers = self.clients.ask(instructions, self.sent_to_train)
        replies = self.reader.collect(answers, instructions)
        record, links = self.record, self.context.links
        work = replies.work(self.roster, self.sent_to_train.nbytes, self.begun_s)
        finish_s, _ = links.finish_s(work, np.zeros(replies.clients.size))
        seconds = links.round_seconds(finish_s, np.zeros(0), 0.0)
        record.search = {"failures": replies.failures, "intermediate_s": seconds}
        record.round_s += seconds
        record.downlink_bytes += self.sent_to_train.nbytes * len(answers)
        record.calibration_bytes += self.model.buffers.nbytes * len(replies.statistics)
        replies.charge(record)
        return replies

    def preview(self, selection: Selection, replies: Replies) -> tuple[Model, Floats]:
        """The next model if only `selection` had trained, and the weight of each update in it. No state changes.

        Its statistics are the mean of the clients' BatchNorm statistics. All clients are among the `replies`.
        """
        chosen, buffers = replies.only(selection.clients), self.model.buffers
        if chosen.statistics:
            robust, vectors = self.context.aggregation.traits.robust, np.stack(chosen.statistics)
            average = np.median(vectors, axis=0) if robust else mean_vector(vectors, chosen.examples)
            buffers = average.astype(buffers.dtype)
        step = self.server.preview_step(self.model.parameters, selection, chosen)
        return Model(step.parameters, buffers), step.weights

    def loss(self, model: Model, clients: Ints) -> tuple[float, Ints]:
        """Loss f of a model, inf if unknown, and the clients that tested it.

        It is the loss on the surrogate set, if there is one; no client tests it then. Otherwise it is the mean over the
        test examples of the `clients`.
        """
        context, number = self.context, self.info.number
        if context.surrogate is not None:
            loss = context.surrogate(*model)
            return loss if np.isfinite(loss) else float("inf"), NOBODY
        sent = sent_model(*model)
        answers = self.clients.ask(dict.fromkeys(clients.tolist(), LocalTestInstruction(number)), sent)
        tested = read_tests(answers, number, context)
        examples = np.array([answer.examples for answer in tested.values()], np.float64)
        testers = np.array(list(tested), np.int64)
        steps_s = self.roster.step_s[testers] * (examples / context.training.batch_size)
        probe_s = context.links.probe_s(evaluation(self.roster, testers, steps_s, sent))
        self.record.round_s += context.links.round_seconds(np.zeros(0), probe_s, 0.0)
        self.record.probe_bytes += clients.size * (sent.nbytes + SCALAR_BYTES)
        return tested_loss(tested)


@dataclass(frozen=True, eq=False)
class Dispatch:
    """Cohort of a round, and its work.

    Attributes
    ----------
    opened : the round, with the model from which the cohort starts
    instructions : client -> its train instruction, by ascending id
    until : end of the wait for their replies
    wanted : number of replies to aggregate, the first that arrive
    statement : with secure sums, the statement of the round's masks
    """

    opened: OpenRound
    selection: Selection
    instructions: Mapping[int, TrainInstruction]
    until: Until
    wanted: int
    statement: Statement | None = None

    @property
    def work(self) -> Work:
        """Work of the cohort for the clock: the download, and the local steps of the settings."""
        opened, clients = self.opened, self.selection.clients
        roster, nothing = opened.roster, np.zeros(clients.size, np.int64)
        steps = np.array([opened.reader.steps(*asked)[0] for asked in self.instructions.items()], np.float64)
        links = roster.downlink_bits_per_s[clients], roster.uplink_bits_per_s[clients]
        compute_s, sent_bytes = roster.step_s[clients] * steps, opened.sent_to_train.nbytes
        return Work(clients, compute_s, *links, sent_bytes, nothing, nothing, opened.begun_s)

    def losing(self, clients: Container[int]) -> "Dispatch":
        """The same dispatch, but the training of these clients, which leave, changes no state of theirs."""
        instructions = {
            client: replace(asked, keep_state=client not in clients) for client, asked in self.instructions.items()
        }
        return replace(self, instructions=instructions)
