"""Run in progress: all state that the next round and a checkpoint need, and the opening and the end of a round."""

import logging
import math
import time
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import user_code
from fedsel_app.config.run import lower_wins
from fedsel_app.messages.instructions import LocalTestInstruction
from fedsel_app.messages.scalars import METRIC
from fedsel_app.network.clock import Presence
from fedsel_app.records.schema import Failure, RoundRecord, reaches
from fedsel_app.records.summary import stalled
from strategies.aggregation.calibration import BufferAverages
from strategies.aggregation.server_state import ServerState, Step
from strategies.checkpoint import Arrays, BestModel, Stateful, gather, matching, scatter
from strategies.method import SelectionMethod, evaluates, is_over, round_info
from strategies.opened import OpenRound
from strategies.participation import ISP, Participation
from strategies.roster import Needs, Outcome, Roster, Selection
from strategies.round.clients import ConnectedClients
from strategies.round.federation import Federation, SentModel, sent_model
from strategies.round.instructions import InstructionBuilder
from strategies.round.probing import ClientProber
from strategies.round.replies.training import Replies, ReplyReader
from strategies.round.replies.values import read_tests, tested_loss
from strategies.round_record import (
    FRUITLESS_ROUNDS,
    fruitless_reasons,
    record_client_tests,
    record_evaluation,
    record_step,
    remarks,
    run_failed,
)
from strategies.run_context import Evaluation, Model, RunContext
from strategies.under_way import under_way

LOGGER = logging.getLogger("fedsel")
ROUNDING_S = 1e-6
"""Above the rounding error of the run's clock: a round may end with the leaving of a client."""
Method = SelectionMethod[Any]


class Run:
    """State of a run after its last finished round. `strategies.run_round` continues it.

    It does not hold the method: each round is opened for one.

    Parameters
    ----------
    roster : the method's roster, which the rounds write
    needs : what the method needs to know

    Attributes
    ----------
    model : the global model
    policy : how many clients train in a round
    under_way : the clients that are under way between two rounds; None if the server waits for its cohort
    buffers : averages of the clients' buffers; None if the model has none
    time_s : the run's clock, simulated or measured
    completed : rounds that were finished before this process continued the run
    ended : True after the last round
    record : record of the current round
    """

    def __init__(self, context: RunContext, roster: Roster, needs: Needs) -> None:
        self.context, self.roster = context, roster
        answer_s = context.replies.round_deadline_s if context.links.measured else 0.0
        self.clients = ConnectedClients(
            context.run.clients,
            context.enrolment,
            answer_s=answer_s,
            admission=context.admission,
            masked=context.privacy.masked,
        )
        self.prober = ClientProber(self.clients, roster, needs, context)
        self.policy = ISP(context) if context.participation.searches else Participation(context)
        self.server = ServerState(context)
        reports = needs.reports | self.server.solver.reports | {METRIC + name for name in needs.fit_metrics}
        estimated = () if self.server.estimates is None else self.server.estimates
        self.instructions = InstructionBuilder(
            *(context, roster, reports, estimated, self.server.common), test_part=needs.probe_test_part
        )
        if context.calibration.local:
            self.clients.history_of = self.instructions.history
        self.reader = ReplyReader(context, roster, reports, self.server.solver.payloads)
        self.under_way = under_way(context)
        self.buffers = BufferAverages(context) if context.buffers.size else None
        self.model = Model(context.initial, context.buffers)
        self.best = BestModel(*self.model)
        self.time_s, self.completed, self.ended = 0.0, 0, False
        self._saving_s = self._unsaved_s = 0.0
        self.record = RoundRecord(0)
        self._fruitless: list[list[str]] = []
        """Reasons in each of the rounds since the last update."""

    # The round --------------------------------------------------------------------------------------------------

    def open(self, method: Method, federation: Federation, number: int) -> OpenRound | None:
        """Open round `number`: enrol the clients of `federation`.

        Returns None if the method has no round left, because clients that left cut its last own round short. Then the
        model is evaluated, round `number` is recorded without a client, and the run ends.
        """
        label_count_bytes = self.prober.enrol(federation, number, wait=number == self.completed + 1)
        started_s = time.perf_counter()
        record = RoundRecord(number)
        self._await_clients(record)
        if is_over(method, number - 1):
            self.record = RoundRecord(number, method_round=self.context.run.rounds)
            self._test(self.record)
            self._write(started_s)
            self.end()
            return None
        info, sent, self.record = round_info(method, number), sent_model(*self.model), record
        sent_to_train = self.server.solver.with_control(sent)
        if self.server.common is not None:
            sent_to_train = SentModel(sent_to_train.arrays, self.server.common.begin(info))
        record.method_round, record.iteration = info.method_round, info.iteration
        return OpenRound(
            info=info,
            method=method,
            roster=self.roster,
            context=self.context,
            model=self.model,
            sent=sent,
            sent_to_train=sent_to_train,
            record=record,
            opened_s=self.time_s,
            started_s=started_s,
            label_count_bytes=label_count_bytes,
            clients=self.clients,
            prober=self.prober,
            instructions=self.instructions,
            reader=self.reader,
            server=self.server,
        )

    def _await_clients(self, record: RoundRecord) -> None:
        """Leave out the connected clients that are under way, or away on the run's clock.

        If no client is under way or there, wait for the first that comes.
        """
        presence, roster = self.context.links.presence, self.roster
        busy = [] if self.under_way is None else list(self.under_way.clients)
        if presence is not None:
            time_s, there = self.time_s, self._staying(presence, self.time_s)
            if not busy and not (roster.available & there).any() and (connected := roster.ids.tolist()):
                time_s = min(presence.next_available(client, time_s) for client in connected)
                record.round_s, there = time_s - self.time_s, self._staying(presence, time_s)
            roster.available &= there
            record.available = int(roster.available.sum())
        roster.available[busy], roster.under_way[:] = False, False
        roster.under_way[busy] = True
        if self.under_way is not None and (resting := self.under_way.resting(roster.ids, record.round)):
            roster.available[resting], record.resting = False, resting

    @staticmethod
    def _staying(presence: Presence, time_s: float) -> NDArray[np.bool_]:
        """True for the clients that are there at `time_s` and do not leave at once, (K,)."""
        there = presence.available(time_s).copy()
        return there & presence.available(time_s + ROUNDING_S)

    def learn(self, opened: OpenRound, selection: Selection, replies: Replies, step: Step) -> None:
        """Take the next model with its BatchNorm statistics, and update the roster, the method and the record.

        `selection` has the clients whose replies or failures the round has got.
        """
        number, method_needs = opened.info.number, opened.method.needs(opened.method.config)
        self.roster.record_round(
            *(number, np.array(opened.record.selected, np.int64), replies.clients, replies.losses, step.taken),
            failed=replies.broken,
            staleness=replies.staleness if replies.staleness.size else 0,
            fit_metrics={name: replies.reports[METRIC + name] for name in method_needs.fit_metrics},
        )
        self.model = Model(step.parameters, self.model.buffers)
        failures = list[Failure]()
        if self.buffers is not None:
            buffers, calibration_bytes, failures = self.buffers.take(
                self.clients, replies, self.model, number, self.roster.examples
            )
            self.model = Model(step.parameters, buffers)
            opened.record.calibration_bytes += calibration_bytes
        outcome = Outcome(
            opened.info,
            selection,
            opened.model.parameters,
            replies.clients,
            step.updates,
            step.aggregate,
            replies.local_steps,
            replies.losses,
            replies.reports,
            replies.failed,
            self._norms(replies, step) if method_needs.norms else np.zeros(0),
        )
        with user_code(type(opened.method).__module__, f"`update` of the method {opened.method.name}"):
            opened.method.learn(outcome)
        record_step(opened, selection, replies, step)
        opened.record.failures = sorted([*opened.record.failures, *failures], key=itemgetter("client"))

    @staticmethod
    def _norms(replies: Replies, step: Step) -> NDArray[np.float64]:
        """Norms of the combined updates, (r,), or what workers or clients with masks told of them."""
        if step.updates:
            return np.array([update.norm() for update in step.updates])
        return np.array([reply.norms[0] if reply.norms else 0.0 for reply in replies.decoded])

    def close(self, opened: OpenRound) -> RoundRecord:
        """Evaluate the model, and write the record. Then end the run, or save a checkpoint.

        The model is evaluated every `eval-every` rounds and in the last, with `client-eval` also by all connected
        clients. The run ends after its last round, at the target, or when its loss on the validation set has stalled.

        Raises RunFailed if `FRUITLESS_ROUNDS` rounds in a row, or all rounds, had no usable update, and ConfigError if
        the clock has no number for the end of the round.
        """
        method, record, context = opened.method, opened.record, self.context
        if not math.isfinite(self.time_s + record.round_s):
            raise ConfigError(
                f"Choose faster links or devices, or set 'round-deadline-s': round {record.round} takes "
                f"{record.round_s:g} s on the simulated clock, more than it can count."
            )
        if evaluates(method, record.round, context.evaluation.eval_every):
            self._test(record)
        self._write(opened.started_s)
        self._refuse_fruitless(over=is_over(method, record.round))
        self.time_s += record.round_s
        self._unsaved_s += record.wall_s
        reached = record.accuracy is not None and reaches(record.accuracy, context.evaluation.target, context.score)
        stops = reached and context.evaluation.stop_at_target
        if stops or stalled(context.recorder.rows, context.evaluation.patience) or is_over(method, record.round):
            self.end()
        elif self._saves(record.round):
            started_s = time.perf_counter()
            context.recorder.checkpoint(self.snapshot(method))
            self._saving_s, self._unsaved_s = time.perf_counter() - started_s, 0.0
            self._remember_checkpoint(record.round)
        return record

    def _refuse_fruitless(self, *, over: bool) -> None:
        """Raise RunFailed if the last rounds, or all rounds of a run that is `over`, had no usable update."""
        in_vain = over and not self.roster.last_returned.any()
        if self.record.aggregated:
            self._fruitless.clear()
        elif reasons := fruitless_reasons(self.record, measured=self.context.links.measured, in_vain=in_vain):
            self._fruitless.append(reasons)
        if self._fruitless and (in_vain or len(self._fruitless) >= FRUITLESS_ROUNDS):
            raise run_failed(self._fruitless, in_vain=in_vain)

    def _saves(self, number: int) -> bool:
        """True if a checkpoint follows round `number`."""
        every, waits = self.context.records.checkpoint_every, self.context.checkpoints_wait
        return bool(every) and number % every == 0 and not (waits and self._unsaved_s < self._saving_s)

    def _write(self, started_s: float) -> None:
        """Write the record of the current round, which started at `started_s` by this process's clock."""
        self.record.wall_s, self.record.epsilon = time.perf_counter() - started_s, self.server.epsilon
        self.context.recorder.round(self.record)

    def _test(self, record: RoundRecord) -> None:
        """Evaluate the global model on the server's test set, and on its validation set, which decides on the best.

        With `client-eval` the clients test it too. If layers stay with them, the mean over the clients is the result.
        """
        self._record_test(record, self.context.evaluate(*self.model))
        if self.context.evaluation.client_eval:
            self._test_on_clients(record)
            if self.context.calibration.local and record.client_accuracy is not None:
                metrics = record.client_metrics or {}
                self._record_test(record, Evaluation(record.client_loss, record.client_accuracy, metrics))

    def _record_test(self, record: RoundRecord, result: Evaluation | None) -> None:
        if result is None:
            return
        record_evaluation(record, result, self.context.score)
        value = -result.score if lower_wins(self.context.score) else result.score
        if result.validation is not None and result.validation.loss is not None:
            value = -result.validation.loss
        self.best.offer(value, *self.model)

    def _test_on_clients(self, record: RoundRecord) -> None:
        """Let all connected clients test the model on their own test parts. The policy learns their loss.

        A deployed client that trains would answer only after its training, so it does not test.
        """
        busy = self.under_way.clients if self.under_way is not None and self.context.links.measured else ()
        tests = dict.fromkeys(self.clients.nodes.keys() - busy, LocalTestInstruction(record.round))
        metrics = self.context.evaluation.measured_keys(self.context.classes) if self.context.calibration.local else ()
        scores = list(dict.fromkeys([self.context.score, *(record.metrics or metrics)]))
        replies = self.clients.ask(tests, sent_model(*self.model))
        answers = read_tests(replies, record.round, self.context, scores)
        self.policy.observe(record.round + 1, *tested_loss(answers))
        record_client_tests(record, answers, self.context.recorder, scores)

    def end(self) -> None:
        """Log the remarks, and write the summary and the models."""
        self.ended = True
        for remark in remarks(self.context.recorder.rows, self.context):
            LOGGER.warning(remark)
        best = self.best.parameters, self.best.buffers
        self.context.recorder.finish(self.model, best, self.roster.selections)

    # Checkpoints ------------------------------------------------------------------------------------------------

    def snapshot(self, method: Method) -> Arrays:
        """Checkpoint of the run after its last finished round, as named arrays."""
        own = {"round": np.array(self.record.round), "time_s": np.array(self.time_s)}
        own |= {"key": np.array(self.instructions.key)}
        return own | self.model._asdict() | gather(self._parts(method))

    def restore(self, arrays: Mapping[str, NDArray[Any]], method: Method) -> None:
        """Load what `snapshot` returned. Raises ConfigError if it is from a different run."""
        self.model = Model(*(matching(arrays, name, array) for name, array in self.model._asdict().items()))
        self.completed = int(matching(arrays, "round", np.array(0)))
        self.time_s = float(matching(arrays, "time_s", np.array(0.0)))
        self.instructions.key = str(matching(arrays, "key", np.array(self.instructions.key)))
        scatter(arrays, self._parts(method))
        self._remember_checkpoint(self.completed)

    def _remember_checkpoint(self, number: int) -> None:
        """Let clients keep the states to which the server may go back: to the checkpoint of round `number`."""
        self.instructions.last_checkpoint = number
        self.instructions.earlier = {} if self.under_way is None else self.under_way.last_aggregated()

    def _parts(self, method: Method) -> dict[str, Stateful]:
        optional = {"under-way": self.under_way, "buffers": self.buffers}
        return {name: part for name, part in optional.items() if part is not None} | {
            "roster": self.roster,
            "best": self.best,
            "server": self.server,
            "policy": self.policy,
            "enrolment": self.clients.enrolment,
            "probes": self.prober.reported_values,
            "replies": self.reader,
            "links": self.context.links,
            "method": method,
        }
