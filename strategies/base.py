"""Federated round: enrol, probe, select, instruct; then decode, aggregate, step the server, update the method."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy
from numpy.typing import NDArray

from fedsel_app.messages import LocalTestInstruction, evaluation_metrics
from fedsel_app.records.schema import RoundRecord
from fedsel_app.seeds import Purpose, stream
from strategies.aggregation.calibration import next_statistics
from strategies.aggregation.server_state import ServerState
from strategies.checkpoint import Arrays, Best, Stateful, gather, matching, scatter
from strategies.method import ConfigT, SelectionMethod
from strategies.participation.intermediate_round import IntermediateRound
from strategies.participation.isp import ISP
from strategies.participation.schedules import scheduled
from strategies.roster import Ints, Outcome, Roster, RoundInfo
from strategies.round import connections
from strategies.round.client_tests import read_tests, tested_loss
from strategies.round.deadline import ReplyDeadline, accept_replies, over_selected_count, simulated_dropouts
from strategies.round.instructions import InstructionBuilder
from strategies.round.probing import ClientProber
from strategies.round.replies import Replies, ReplyCollector, warn_of_few_updates
from strategies.round.round_count import RoundCount
from strategies.round.round_plan import Plan, Probe
from strategies.round.round_record import record_client_tests, record_evaluation, record_search, record_training
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")


class SelectionStrategy(SelectionMethod[ConfigT], Strategy):
    """Selection method as a Flower strategy: the round around a method's own rules. Methods are its subclasses."""

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.clients = connections.ConnectedClients(
            context.run.clients,
            context.enrolment,
            context.pool,
            answer_s=context.replies.round_deadline_s if context.links.measured else 0.0,
        )
        self._prober = ClientProber(self.clients, self.roster, self._needs, context)
        self._server = ServerState(context)
        reports = self._needs.reports | self._server.solver.reports
        estimated = () if self._server.estimates is None else self._server.estimates
        self._instruction_builder = InstructionBuilder(context, self.roster, self.clients, reports, estimated)
        self._collector = ReplyCollector(context, self.roster, reports, self._server.solver.payloads)
        self._isp = ISP(context) if context.participation.searches else None
        self._parameters = context.initial
        self._buffers = context.buffers
        self._best = Best(context.initial, context.buffers)
        self.round_count = RoundCount(self, context.run.rounds)
        self.completed = 0
        """Flower rounds before this process took the run up."""
        self.ended = False
        self._plan: Plan | None = None
        self._intermediate: IntermediateRound | None = None
        self._record = RoundRecord(0)
        self._started_s = time.perf_counter()

    # The round, first half ------------------------------------------------------------------------------------

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters:
        """The initial global model."""
        return connections.pack(self._parameters, self._buffers)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """First half of a round: enrol new clients, probe losses, select the cohort and instruct it."""
        self._started_s = time.perf_counter()
        if self.ended:
            return []
        limits, roster, number = self.context.replies, self.roster, self.completed + server_round
        label_count_bytes = self._prober.enrol(client_manager, number, wait=server_round == 1)
        if self.round_count.over(number - 1):  # by who is there now
            self._end()
            return []
        round_info = self.round_count.info(number)
        record = self._record = RoundRecord(number, round_info.method_round, round_info.iteration)
        sent = self._server.solver.sent_model(parameters)
        rng = self._stream(Purpose.CANDIDATES, round_info)
        if self._isp is not None and self.context.surrogate is not None:
            self._isp.observe(round_info.number, self.context.surrogate(self._parameters, self._buffers))

        if self._isp is not None and self._isp.searches(round_info):
            everybody = roster.ids if self._needs.loss_probe else np.zeros(0, np.int64)
            probe = self._prober.measure(round_info, everybody, parameters, label_count_bytes)
            self._intermediate = self._intermediate_round(round_info, sent, probe)
            count = min(self._isp.search(self._intermediate), roster.ids.size)
            # The method sees its own candidates' losses only, as in other rounds; all of them where everybody trains.
            visible = self._loss_candidates(roster, round_info, count, rng) if count < roster.ids.size else roster.ids
        else:
            self._intermediate = None
            count = min(self._count(round_info), roster.ids.size)
            visible = self._loss_candidates(roster, round_info, count, rng)
            probe = self._prober.measure(round_info, visible, parameters, label_count_bytes)
            count = min(count, roster.ids.size)
        roster.losses[:] = probe.losses_of(visible)
        record.cohort, record.failures = count, probe.failures
        if not count:
            LOGGER.warning("Round %d: no client is connected; the model stays as it is.", round_info.number)
            return []

        over_selected = over_selected_count(count, limits.over_selection, roster.ids.size)
        selection = self.select(roster, round_info, over_selected, self._stream(Purpose.SELECT, round_info))
        statistics, epochs = self._statistics_needed(), self._isp.epochs(round_info) if self._isp is not None else 0
        instructions, record.kept_fraction, fractions = self._instruction_builder.instruct(
            selection, round_info, sent, statistics=statistics, local_epochs=epochs
        )
        wanted = count if over_selected > count else selection.clients.size
        deadline = ReplyDeadline(wanted, limits.round_deadline_s)
        sent_bytes = connections.model_bytes(sent)
        self._plan = Plan(round_info, selection, fractions, sent_bytes, probe, wanted, deadline, statistics, epochs)
        if not self.context.links.measured:
            return instructions
        return [(deadline.timed_proxy(proxy, self.clients.client(proxy)), ins) for proxy, ins in instructions]

    def _stream(self, purpose: Purpose, round_info: RoundInfo) -> np.random.Generator:
        return stream(self.context.run.seed, purpose, round_info.number)

    def _count(self, round_info: RoundInfo) -> int:
        """Number of clients that are to train, by the last search of ISP or by the schedule."""
        if self._isp is not None:
            return self._isp.cohort(round_info)
        return scheduled(self.context.participation, round_info, self.context.run.cohort, self.context.run.clients)

    def _statistics_needed(self) -> bool:
        """True where the round's clients are to send the BatchNorm statistics that their training leaves."""
        searched = self._isp is not None and self._isp.aggregates and self._intermediate is not None
        return self._buffers.size > 0 and (searched or self.context.calibration.of_training)

    def _loss_candidates(self, roster: Roster, round_info: RoundInfo, count: int, rng: np.random.Generator) -> Ints:
        """Clients of which the method is to know the loss before it selects `count`; none where it needs no losses."""
        return self.candidates(roster, round_info, count, rng) if self._needs.loss_probe else np.zeros(0, np.int64)

    def _intermediate_round(self, round_info: RoundInfo, sent: Parameters, probe: Probe) -> IntermediateRound:
        return IntermediateRound(
            round_info,
            self.context,
            self.roster,
            probe,
            self.select,
            self._loss_candidates,
            lambda selection: self._instruction_builder.instruct_intermediate(selection, round_info, sent),
            self.clients,
            self._collector,
            self._server,
            self._parameters,
            self._buffers,
        )

    # The round, second half -----------------------------------------------------------------------------------

    def aggregate_fit(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[tuple[ClientProxy, FitRes] | BaseException],
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Second half of a round: decode, aggregate, step the server, calibrate BatchNorm, update the method."""
        if self.ended:
            return None, {}
        plan, server_round = self._plan, self.completed + server_round
        if plan is None or plan.round_info.number != server_round:
            raise RuntimeError(f"Round {server_round} was aggregated without having been configured.")
        connections.log_failures(failures, server_round, self.clients.enrolment.client_of)
        replies = self._accepted(plan, results)
        clients, started_from = replies.clients, self._parameters
        warn_of_few_updates(clients.size, server_round, self.context.aggregation)
        if self._isp is not None and self._intermediate is not None:
            self._isp.search_aggregated(self._intermediate, replies)
        step = self._server.step(started_from, plan.selection, replies, self.roster.examples)
        selected, losses = plan.selection.clients, replies.losses
        self.roster.record_round(server_round, selected, clients, losses, step.taken, failed=replies.broken)
        self._parameters = step.parameters
        self._buffers, calibration_bytes = next_statistics(
            self.clients, replies, step.parameters, self._buffers, server_round, self.context, self.roster.examples
        )
        self.learn(
            Outcome(
                plan.round_info,
                plan.selection,
                started_from,
                clients,
                step.updates,
                step.aggregate,
                losses,
                replies.reports,
                replies.failed,
            )
        )
        wall_s = time.perf_counter() - self._started_s
        record, roster, links = self._record, self.roster, self.context.links
        record_training(record, plan, replies, step.weights, step.taken, roster, links, calibration_bytes, wall_s)
        if self._intermediate is not None:
            record_search(record, self._intermediate.costs, self._intermediate.record)
        return connections.pack(self._parameters, self._buffers), {}

    def _accepted(self, plan: Plan, results: list[tuple[ClientProxy, FitRes]]) -> Replies:
        """The replies to aggregate: each client's first, decoded and checked, without dropouts and late ones."""
        selected, number = plan.selection.clients, plan.round_info.number
        answered = connections.once_each(((self.clients.client(proxy), result) for proxy, result in results), number)
        for client in simulated_dropouts(selected, number, self.context):
            answered.pop(client, None)
        replies = self._collector.collect(answered, selected, number, plan.statistics, plan.local_epochs)
        work = replies.work(self.roster, np.zeros(0))
        finish_s = self.context.links.finish_s(work, plan.reply_deadline.arrivals_s(replies.clients))
        return accept_replies(replies, finish_s, plan.wanted, self.context.replies)

    # Evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Evaluate the global model on the server's test set, every `eval-every` rounds and in the last."""
        number, every = self.completed + server_round, self.context.evaluation.eval_every
        if not server_round or self.ended or not self.round_count.evaluates(number, every):
            return None
        arrays = parameters_to_ndarrays(parameters)
        buffers = arrays[1] if len(arrays) > 1 else np.zeros(0, np.float32)
        result = self.context.evaluate(arrays[0], buffers)
        record_evaluation(self._record, result)
        self._best.offer(result.accuracy, arrays[0], buffers)
        return result.loss, evaluation_metrics(result.accuracy)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """With `client-eval`, have every client evaluate the model on its test part; else the round ends here."""
        if self.ended:
            return []
        if not self.context.evaluation.client_eval or self._record.loss is None or not self.clients.proxies:
            self._close_round()
            return []
        ins = EvaluateIns(parameters, LocalTestInstruction(self._record.round).to_config())
        return [(self.clients.proxies[client], ins) for client in sorted(self.clients.proxies)]

    def aggregate_evaluate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, EvaluateRes]],
        failures: list[tuple[ClientProxy, EvaluateRes] | BaseException],
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Mean loss and accuracy over the clients' own test parts, each with equal weight; the round ends here."""
        answers = read_tests({self.clients.client(proxy): reply for proxy, reply in results}, self.context)
        if self._isp is not None:
            self._isp.observe(self._record.round + 1, *tested_loss(answers))
        record_client_tests(self._record, answers, self.context.recorder)
        self._close_round()
        return None, {}

    def _close_round(self) -> None:
        record, recorder, evaluation = self._record, self.context.recorder, self.context.evaluation
        record.wall_s, record.epsilon = time.perf_counter() - self._started_s, self._server.epsilon
        recorder.round(record)
        reached = evaluation.stop_at_target and (record.accuracy or 0.0) >= evaluation.target
        if reached or self.round_count.over(record.round):
            self._end()
        elif (every := self.context.records.checkpoint_every) and record.round % every == 0:
            recorder.checkpoint(self.snapshot())
            self._instruction_builder.last_checkpoint = record.round

    def _end(self) -> None:
        self.ended, best = True, (self._best.parameters, self._best.buffers)
        self.context.recorder.finish((self._parameters, self._buffers), best, self.roster)

    # Checkpoints ----------------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful] = {"roster": self.roster, "best": self._best, "server": self._server}
        parts |= {"policy": self._isp} if self._isp is not None else {}
        parts |= {
            "enrolment": self.clients.enrolment,
            "probes": self._prober.claims,
            "replies": self._collector.claims,
        }
        return parts | {"links": self.context.links, "method": self}

    def snapshot(self) -> Arrays:
        """Checkpoint of the run after its last finished round, as named arrays."""
        own = {"round": np.array(self._record.round), "key": np.array(self._instruction_builder.key)}
        return own | {"parameters": self._parameters, "buffers": self._buffers} | gather(self._parts())

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `snapshot` returned. Raises ConfigError if it is not of such a run."""
        self._parameters = matching(arrays, "parameters", self._parameters)
        self._buffers = matching(arrays, "buffers", self._buffers)
        self.completed = self._instruction_builder.last_checkpoint = int(matching(arrays, "round", np.array(0)))
        self._instruction_builder.key = str(matching(arrays, "key", np.array(self._instruction_builder.key)))
        scatter(arrays, self._parts())
