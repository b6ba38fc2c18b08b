"""Round record: functions that write it. `fedsel_app.records.schema` defines its fields."""

import logging
import math
import time
from collections.abc import Mapping
from operator import itemgetter

import numpy as np

from fedsel_app.messages.answers import EvaluateAnswer
from fedsel_app.records.run_folder import Recorder
from fedsel_app.records.schema import ClientTestRecord, RoundRecord
from strategies.aggregation.server_state import Step
from strategies.round.clients import SCALAR_BYTES
from strategies.round.replies import Replies
from strategies.run import Plan, RunningMethod
from strategies.run_context import Evaluation

LOGGER = logging.getLogger("fedsel")
NOTED = 0.5
"""If less than this share of an update is taken, the log names its client. An honest update is seldom twice the median.
"""


def record_training(strategy: RunningMethod, plan: Plan, replies: Replies, step: Step, calibration_bytes: int) -> None:
    """Record selection, replies and aggregation, and add their costs."""
    record, roster, selection, aggregated = strategy.run.record, strategy.roster, plan.selection, replies.clients
    record.selected = selection.clients.tolist()
    record.uplink_bits_per_s = roster.uplink_bits_per_s[selection.clients].tolist()
    record.kept_fractions = [instruction.kept_fraction for instruction in plan.instructions.values()]
    record.scores = selection.scores.tolist()
    record.components = {name: values.tolist() for name, values in selection.components.items()}
    record.probe_losses = roster.losses[selection.clients].tolist()
    record.aggregated = aggregated.tolist()
    record.weights = step.weights.tolist()
    if (step.taken < 1.0).any():
        record.taken = step.taken.tolist()
        _log_rejected(record.round, record.aggregated, record.taken)
    record.fit_losses = replies.losses.tolist()
    record.failures = sorted([*plan.probe.failures, *replies.failures], key=itemgetter("client"))
    record.unused = replies.unused.tolist()
    work, wall_s = replies.work(roster, plan.probe.duration_s), time.perf_counter() - strategy.run.started_s
    record.round_s += strategy.context.links.round_seconds(work, wall_s)
    record.uplink_bytes += int(replies.uplink_bytes.sum())
    record.uplink_value_bytes += int(replies.uplink_value_bytes.sum())
    record.downlink_bytes += plan.model.nbytes * selection.clients.size
    record.probe_bytes += plan.probe.bytes + SCALAR_BYTES * len(replies.reports) * aggregated.size
    record.calibration_bytes += calibration_bytes
    record.client_updates += int(aggregated.size)


def _log_rejected(number: int, clients: list[int], taken: list[float]) -> None:
    """Log the clients if less than the share `NOTED` of their update was aggregated."""
    noted = [f"{share:.3g} of client {client}'s" for client, share in zip(clients, taken, strict=True) if share < NOTED]
    if noted:
        LOGGER.warning("Round %d: the 'aggregation' rejects updates, and takes only %s.", number, ", ".join(noted))


def record_client_tests(record: RoundRecord, answers: Mapping[int, EvaluateAnswer], recorder: Recorder) -> None:
    """Record each client's test on its own test part, and their means, each client with equal weight."""
    known = {client: answer.accuracy for client, answer in answers.items() if answer.accuracy is not None}
    recorder.clients(ClientTestRecord(client, record.round, accuracy) for client, accuracy in known.items())
    if known:
        record.client_accuracy = float(np.mean(list(known.values())))
    if losses := [answer.loss for answer in answers.values() if math.isfinite(answer.loss)]:
        record.client_loss = float(np.mean(losses))


def record_evaluation(record: RoundRecord, evaluation: Evaluation) -> None:
    """Record loss, score and metrics on the server's test set. An undefined score is left out."""
    record.loss = evaluation.loss
    record.accuracy = evaluation.accuracy if math.isfinite(evaluation.accuracy) else None
    record.metrics = dict(evaluation.metrics) or None
