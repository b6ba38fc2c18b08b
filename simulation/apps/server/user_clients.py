"""Federation of the clients of a user's Flower app: translates between a round's messages and the app's messages.

Another federation carries the messages: `transports`.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeGuard, cast

import numpy as np
from flwr.common import ndarrays_to_parameters
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.messages.answers import MOST_EXAMPLES, EnrolAnswer, TrainAnswer
from fedsel_app.messages.instructions import LocalTestInstruction, ProbeInstruction, TrainInstruction
from fedsel_app.messages.records import MACHINE_FAULT
from fedsel_app.messages.reported_values import lower_median, one_line, winsorised
from fedsel_app.messages.scalars import METRIC, Report
from fedsel_app.records.files import MachineFault
from fedsel_app.records.schema import EnrolmentRecord
from fedsel_app.wire.codec import Update, encode
from fedsel_app.wire.npy import read_named
from fedsel_app.wiring.configuration import AppConfig
from simulation.apps.client.array_layout import ArrayLayout
from simulation.apps.client.messages import AppTrainInstruction, reported_loss
from simulation.apps.server.settings import unmet
from simulation.apps.server.transports import UserGrid, UserReply, without_errors_of_unchanged
from strategies.round.federation import ALL, Answers, Message, NodeError, Reply, SentModel, Until
from strategies.run import Run

LOGGER = logging.getLogger("fedsel")
MIXED = (
    "Some clients report a partition id and others do not, so two clients may be taken for the same one: use fedsel's "
    "line in all clients or in none."
)


def numbered(before: Mapping[str, int], connected: Sequence[str]) -> dict[str, int]:
    """Numbers 0, 1, 2 ... of the nodes `before` and now: a new node gets the lowest that no connected node has.

    Nodes that connect together get them in the order of `connected`. A disconnected node keeps its number until a new
    node needs it.
    """
    numbers = {} if before.keys().isdisjoint(connected) else dict(before)
    for node in [node for node in connected if node not in numbers]:
        held = {number for other, number in numbers.items() if other in connected}
        free = min(set(range(len(held) + 1)) - held)
        numbers = {other: number for other, number in numbers.items() if number != free}
        numbers[node] = free
    return numbers


def describe_examples(reply: Reply, key: str) -> str:
    """What a reply has as its number of examples, or the names of its metrics if it has none."""
    if key not in reply.metrics:
        names = ", ".join(sorted(reply.metrics))
        return f"only {names}" if names else "no metrics"
    return one_line(reply.examples)


REGISTRATION_S = 2.0
"""A simulation whose nodes stay as they are for this time has no more: Flower starts the server while it adds them."""


class UserClients:
    """Federation of the clients of a user's own app.

    Parameters
    ----------
    layout : layout of the user's model
    run : the run; its roster and records get a client's examples as soon as they are known
    carrier : the federation that carries the messages
    numbers : node -> number of its client, from before the run was resumed; for clients without a partition id
    known_examples : partition id -> examples, of the recorded clients

    Attributes
    ----------
    enrolments : node -> its enrolment answer, for the nodes that can take part
    refusal : reason, as a sentence, why the last refused client cannot take part; empty if all can
    trained, tested : partition id -> its reply to the round's training, and to its local test, without arrays
    """

    simulated = False

    def __init__(
        self,
        config: AppConfig,
        layout: ArrayLayout,
        run: Run,
        carrier: UserGrid,
        numbers: Mapping[str, int],
        known_examples: Mapping[int, float],
    ) -> None:
        self._config, self._layout, self._run, self._numbers = config, layout, run, numbers
        self.carrier = carrier
        self.refusal = ""
        self.enrolments: dict[str, EnrolAnswer] = {}
        self.trained: dict[int, UserReply] = {}
        self.tested: dict[int, UserReply] = {}
        self._examples = np.zeros(config.run.clients)
        for client, examples in known_examples.items():
            self._examples[client] = examples
        self._recorded = set(known_examples)
        self._exact = config.compression.lossless and not config.privacy.dp_clip_norm
        self._model: tuple[SentModel, SentModel] | None = None

    def nodes(self) -> Set[str]:
        """Ids of the nodes that are connected now. Raises ConfigError if a simulation has too few."""
        nodes, before = self.carrier.nodes(), None
        clients = self._config.run.clients
        while len(nodes) < (self._config.enrolment.min_available_clients or clients) and self.carrier.in_simulation:
            if nodes != before:
                time.sleep(REGISTRATION_S)
                nodes, before = self.carrier.nodes(), nodes
                continue
            raise ConfigError(
                f"The simulation has {len(nodes)} nodes for {clients} clients. Give `flwr run` --federation-config "
                f"\"num-supernodes={clients} client-resources-num-cpus=1\", or set 'clients' to {len(nodes)}."
            )
        self._numbers = numbered(self._numbers, self.carrier.in_order(nodes))
        return nodes

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Send messages in the user's form, and return answers in the round's; an unreadable one is a failure."""
        if not messages:
            return {}
        of_node = {message.node: message for message in messages}
        self.carrier.unchanged = {
            node for node, read_answers in self.enrolments.items() if read_answers.abilities is None
        }
        read: Callable[[Message, UserReply], Reply] = self._enrolled
        if isinstance(messages[0].instruction, TrainInstruction):
            read, answers = self._trained, self._train(messages, until)
        elif messages[0].instruction.message_type == "query":
            with without_errors_of_unchanged():
                answers = self.carrier.ask(messages, until)
        else:
            read, answers = self._evaluated, self._evaluate(messages, until)
        read_answers: Answers = {}
        for node, answer in answers.items():
            try:
                if isinstance(answer, UserReply):
                    self._refuse_machine_fault(answer)
                    answer = read(of_node[node], answer)
            except MachineFault:
                raise
            except Exception as error:  # noqa: BLE001 - any exception from a client's reply is that client's failure
                answer = NodeError(node, str(error))
            read_answers[node] = answer
        if isinstance(messages[0].instruction, TrainInstruction):
            self._count_examples()
        return read_answers

    def _refuse_machine_fault(self, reply: UserReply) -> None:
        """Raise an error for a client whose machine fails.

        Raises MachineFault in a simulation: the machine is that of the run, which can be resumed without a failure.
        Raises ValueError in a deployment, as for other failures of a client.
        """
        if sentence := reply.numbers.get(MACHINE_FAULT):
            again = f'{sentence!s} Then start the same program again, with resume="auto".'
            raise MachineFault(again) if self.carrier.in_simulation else ValueError(sentence)

    # Enrolment ------------------------------------------------------------------------------------------------

    def _enrolled(self, message: Message, reply: UserReply) -> Reply:
        """A reply to an enrolment in the round's form. Raises ConfigError if the client does not meet a requirement."""
        enrolment = EnrolAnswer.from_config(reply.numbers)
        if sentence := unmet(self._config, enrolment.abilities):
            self.refusal = sentence
            raise ConfigError(sentence)
        self.enrolments[message.node] = enrolment
        if len({other.client < 0 for other in self.enrolments.values()}) > 1 and not self.carrier.in_simulation:
            LOGGER.warning(MIXED)
        client = self._numbers[message.node] if enrolment.client < 0 else enrolment.client
        examples, on_roster = enrolment.examples, self._run.roster.examples
        if not examples and 0 <= client < on_roster.size:
            # The client is recorded already, with a stand-in. The record of its enrolment follows with its examples.
            on_roster[client] = on_roster[client] or self._stand_in()
            examples = math.ceil(on_roster[client])
        return Reply(EnrolAnswer(client, examples, enrolment.label_counts).to_config())

    def _stand_in(self) -> float:
        """Number of examples assumed for a client until it reports it: the median of the other clients, or 1."""
        middle = lower_median(np.where(self._examples > 0, self._examples, np.nan))
        return 1.0 if math.isnan(middle) else middle

    def _count_examples(self) -> None:
        """Write the reported numbers of examples into the roster, and record the new ones.

        Only the node that owns a partition id can report for its client.
        """
        for client, node in self._run.clients.nodes.items():
            examples = self.enrolments[node].examples if node in self.enrolments else 0
            if examples and client not in self._recorded:
                self._examples[client] = self._examples[client] or min(examples, MOST_EXAMPLES)
                self._recorded.add(client)
        reported = self._examples > 0
        if not reported.any():
            return
        roster, claimed = self._run.roster, self._examples
        server_round, before = self._run.record.round, roster.examples.copy()
        bounded = winsorised(claimed, self._config.reported_values.example_clip, claimed[reported])
        for client in np.flatnonzero((bounded < claimed) & (bounded != before)).tolist():
            LOGGER.warning(
                "Round %d: client %d reports %g examples and counts for %g: see 'example-clip'",
                *(server_round, client, claimed[client], bounded[client]),
            )
        enrolled = roster.examples > 0
        roster.examples[enrolled & ~reported] = self._stand_in()
        roster.examples[reported] = bounded[reported]
        steps = self._config.training.steps
        whole = np.ceil(roster.examples[enrolled]).astype(np.int64)
        roster.local_steps[enrolled] = [steps(examples) for examples in whole.tolist()]
        new = [client for client in np.flatnonzero(reported).tolist() if client not in self._recorded]
        self._recorded.update(new)
        self._run.context.recorder.clients(
            EnrolmentRecord(client, server_round, math.ceil(self._examples[client])) for client in new
        )

    # Training -------------------------------------------------------------------------------------------------

    def users_model(self, model: SentModel) -> SentModel:
        """The round's flat parameters and statistics as the user's arrays, then a control variate if there is one."""
        if self._model is None or self._model[0] is not model:
            parameters, *others = model.arrays
            statistics = others.pop(0) if self._layout.statistics else np.zeros(0, np.float32)
            self._model = model, SentModel((*self._layout.restore(parameters, statistics), *others))
        return self._model[1]

    def _train(self, messages: Sequence[Message], until: Until) -> Answers:
        """Let the clients train. If the initial loss is needed, clients without fedsel's client app evaluate first."""
        sent = [
            replace(message, instruction=self._instruction(message), model=self.users_model(message.model))
            for message in messages
        ]
        self.trained.clear()
        probes = [
            replace(message, instruction=ProbeInstruction(cast(TrainInstruction, message.instruction).server_round, 0))
            for message in messages
            if self.enrolments[message.node].abilities is None
            and Report.INITIAL_LOSS in cast(TrainInstruction, message.instruction).reports
        ]
        before = self._evaluate(probes, until)
        failed = {node: answer for node, answer in before.items() if isinstance(answer, Exception)}
        answers = dict(self.carrier.ask([message for message in sent if message.node not in failed], until))
        for node, measured in before.items():
            if isinstance(measured, Reply) and isinstance(answer := answers.get(node), Reply):
                answers[node] = replace(answer, loss=measured.loss)
        return answers | failed

    def _instruction(self, message: Message) -> AppTrainInstruction:
        return AppTrainInstruction(
            **vars(message.instruction),
            seed=self._config.run.seed,
            compression=json.dumps(self._config.compression.values()),
            statistics_positions=",".join(map(str, self._layout.statistics)),
            exact=self._exact,
            loss_key=self.carrier.loss_key,
        )

    def _trained(self, message: Message, reply: UserReply) -> Reply:
        """A reply to a train message in the round's form.

        Raises ValueError if the client returned a different model, or no valid number of examples.
        """
        client, instruction = message.client or 0, cast(TrainInstruction, message.instruction)
        if not counts(reply.examples):
            key = self.carrier.examples_key
            raise ValueError(
                f"A client's training must report its number of examples as {key}, above 0 and at most {MOST_EXAMPLES}."
                f" It reports {describe_examples(reply, key)}."
            )
        steps, tensors = float(self._config.training.steps(math.ceil(reply.examples))), reply.tensors
        if self.enrolments[message.node].abilities is not None:
            reports = [report for report in Report if report in reply.numbers]
            answer = replace(TrainAnswer.from_metrics(reply.numbers, reports, loss_optional=True), work_steps=steps)
        else:
            asked = Report.INITIAL_LOSS in instruction.reports
            measured: dict[str, float] = {Report.INITIAL_LOSS: float(reply.loss)} if asked else {}
            answer = TrainAnswer(reported_loss(reply.metrics), steps, reply.arrived_s, reports=measured)
            tensors = self._update(message, tensors)
        metrics = [name for name in instruction.metrics.split(",") if name]
        if missing := [name for name in metrics if name not in reply.metrics]:
            raise ValueError(
                f"A client's training must report the metric {missing[0]}, which the strategy "
                f"{self._config.run.strategy} reads. It reports only {one_line(', '.join(sorted(reply.metrics)))}."
            )
        self.trained[client] = replace(reply, tensors=())
        self._examples[client] = reply.examples
        told = {METRIC + name: reply.metrics[name] for name in metrics}
        return replace(reply, metrics=answer.to_config() | told, tensors=tensors)

    def _update(self, message: Message, tensors: Sequence[bytes]) -> Sequence[bytes]:
        """The update, and the statistics if the round needs them, from a client's whole model."""
        client, instruction = message.client or 0, cast(TrainInstruction, message.instruction)
        sent = self.users_model(message.model).arrays
        returned = [read_named(f"The array {place} of its reply", tensor) for place, tensor in enumerate(tensors)]
        if not self._exact:
            self._layout.refuse_tied(sent, returned)
        before, _ = self._layout.flatten(sent)
        with np.errstate(over="ignore", invalid="ignore"):  # `encode` refuses an update that is not finite
            after, statistics = self._layout.flatten(returned)
            update = Update(after.size, None, after - before)
        payload = np.frombuffer(encode(update, client=client, server_round=instruction.server_round), np.uint8)
        answered: list[NDArray[Any]] = [payload, *([statistics] if instruction.statistics else [])]
        return ndarrays_to_parameters(answered).tensors

    # Evaluation -----------------------------------------------------------------------------------------------

    def _evaluate(self, messages: Sequence[Message], until: Until) -> Answers:
        """Let the clients evaluate in their own way: for their own tests, and for loss probes if they lack `losses`."""
        if any(isinstance(message.instruction, LocalTestInstruction) for message in messages):
            self.tested.clear()
        return self.carrier.ask(
            [replace(message, model=self.users_model(message.model)) for message in messages], until
        )

    def _evaluated(self, message: Message, reply: UserReply) -> Reply:
        """A reply to an evaluate message in the round's form, with whole examples; those to local tests are kept."""
        if isinstance(message.instruction, LocalTestInstruction) and message.client is not None:
            self.tested[message.client] = reply
        return replace(reply, examples=math.ceil(reply.examples)) if counts(reply.examples) else reply


def counts(examples: object) -> TypeGuard[float]:
    """True for a number of examples that can be a weight: whole or not, above 0 and at most `MOST_EXAMPLES`."""
    return isinstance(examples, int | float) and not isinstance(examples, bool) and 0 < examples <= MOST_EXAMPLES
