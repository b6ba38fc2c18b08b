"""Round record: functions that write it, and log what is odd in it.

`fedsel_app.records.schema` defines its fields.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter

import numpy as np

from fedsel_app.config import AggregationConfig
from fedsel_app.messages.answers import EvaluateAnswer
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.records.files import RunFailed
from fedsel_app.records.run_folder import Recorder
from fedsel_app.records.schema import ACCURACY, ClientTestRecord, RoundRecord, Row
from strategies.aggregation.server_state import Step
from strategies.opened import OpenRound
from strategies.roster import NOBODY, Ints, Selection
from strategies.round.replies.deadline import AWAY, DROPPED, LATE
from strategies.round.replies.training import Replies
from strategies.run_context import Evaluation, RunContext

LOGGER = logging.getLogger("fedsel")
FRUITLESS_ROUNDS = 3
"""Number of rounds in a row without an aggregated update after which a run has failed."""
NOBODY_CONNECTED = "no client is connected"


def record_selection(opened: OpenRound, selection: Selection, instructions: Mapping[int, TrainInstruction]) -> None:
    """Record the cohort, and add the bytes of its models and of the probe."""
    record, roster, probe = opened.record, opened.roster, opened.probe(selection.clients)
    record.selected = selection.clients.tolist()
    attackers = opened.context.attack.attackers_in(record.round, opened.context.run)
    record.attackers = [client for client in record.selected if client in attackers] or None
    record.uplink_bits_per_s = roster.uplink_bits_per_s[selection.clients].tolist()
    record.kept_fractions = [instruction.kept_fraction for instruction in instructions.values()]
    if selection.own_work:
        record.local_steps = [opened.reader.steps(*asked)[0] for asked in instructions.items()]
    record.scores = selection.scores.tolist()
    record.components = {name: values.tolist() for name, values in selection.components.items()}
    record.probe_losses = roster.losses[selection.clients].tolist()
    metrics = opened.method.needs(opened.method.config).metrics
    record.probe_metrics = {name: roster.metric(name)[selection.clients].tolist() for name in metrics} or None
    record.downlink_bytes += opened.sent_to_train.nbytes * selection.clients.size
    measured = opened.context.links.measured
    record.begun_s = time.perf_counter() - opened.started_s if measured else opened.delay_s
    record.probe_bytes += probe.bytes


def record_step(opened: OpenRound, selection: Selection, replies: Replies, step: Step) -> None:
    """Record the replies of some of the `selection` and their aggregation, and add their costs."""
    record, aggregated = opened.record, replies.clients
    record.aggregated = aggregated.tolist()
    record.weights = step.weights.tolist()
    if (step.taken < 1.0).any():
        record.taken = step.taken.tolist()
    record.fit_losses = replies.losses.tolist()
    metrics = opened.method.needs(opened.method.config).fit_metrics
    record.fit_metrics = {name: opened.roster.fit_metric(name)[aggregated].tolist() for name in metrics} or None
    record.failures = sorted([*opened.probe(NOBODY).failures, *replies.failures], key=itemgetter("client"))
    record.unused = replies.unused.tolist()
    replies.charge(record)
    config = opened.context.aggregation
    warn_of_few_updates(aggregated.size, record.round, config)
    warn_of_zero_weights(aggregated, record.round, selection, config.weighting)


def record_seconds(opened: OpenRound, replies: Replies) -> None:
    """Add the seconds of a round in which the server waited for its cohort."""
    record, links, probe = opened.record, opened.context.links, opened.probe(NOBODY)
    wall_s = time.perf_counter() - opened.started_s
    record.arrived_s = (replies.finish_s + (record.begun_s or 0.0)).tolist()
    record.round_s += links.round_seconds(replies.finish_s, probe.duration_s, wall_s, replies.waited_s)


def record_client_tests(
    record: RoundRecord, answers: Mapping[int, EvaluateAnswer], recorder: Recorder, scores: Sequence[str]
) -> None:
    """Record each client's test on its own test part, and their means, each client with equal weight.

    `scores` are the names of all scores; the first is the score by which models are compared.
    """
    score = scores[0]
    tests = {client: dict(answer.scores) for client, answer in answers.items() if answer.scores}
    named = record.score = None if score == ACCURACY else score
    values = {name: [own[name] for own in tests.values() if name in own] for name in scores}
    means = {name: float(np.mean(each)) for name, each in values.items() if each}
    recorder.clients(
        ClientTestRecord(client, record.round, own.pop(score, None), named, own or None)
        for client, own in tests.items()
    )
    record.client_accuracy, record.client_metrics = means.pop(score, None), means or None
    if losses := [answer.loss for answer in answers.values() if math.isfinite(answer.loss)]:
        record.client_loss = float(np.mean(losses))


def record_evaluation(record: RoundRecord, evaluation: Evaluation, score: str) -> None:
    """Record loss, score and metrics on the server's test set, and on its validation set. An undefined score is left
    out.
    """
    record.loss = evaluation.loss
    record.score = None if score == ACCURACY else score
    record.accuracy = evaluation.score if math.isfinite(evaluation.score) else None
    record.metrics = dict(evaluation.metrics) or None
    if (validation := evaluation.validation) is not None:
        record.validation_loss = validation.loss
        record.validation_accuracy = validation.score if math.isfinite(validation.score) else None


def warn_of_zero_weights(clients: Ints, server_round: int, selection: Selection, weighting: str) -> None:
    """Log a round in which all aggregated `clients` have the weight 0 in the selection, or some have the score 0."""
    given = {"score": selection.scores, "method": selection.weights}.get(weighting)
    if given is None or not clients.size:
        return
    idle = clients[given[np.searchsorted(selection.clients, clients)] == 0]
    if idle.size == clients.size:
        alike = weighting == "score" or selection.normalise
        LOGGER.warning(
            "Round %d: the %s of all aggregated clients are 0; %s.",
            server_round,
            "scores" if weighting == "score" else "method's weights",
            "their updates count equally" if alike else "their updates change nothing",
        )
    elif idle.size and np.array_equal(given, selection.scores):
        LOGGER.warning(
            "Round %d: 'weighting' %s gives client %s the weight 0: its score is the lowest of all, and its training is"
            " lost. Set 'weighting' to examples or uniform, and everybody's update counts.",
            *(server_round, weighting, ", ".join(map(str, idle))),
        )


def warn_of_few_updates(count: int, server_round: int, config: AggregationConfig) -> None:
    """Log a round that has no update to aggregate, or fewer than the setting `aggregation` needs."""
    if not count:
        LOGGER.warning("Round %d: there is no update to aggregate; the model does not change.", server_round)
    elif count < (least := config.least_updates):
        LOGGER.warning(
            "Round %d: only %d updates came back. With fewer than %d the 'aggregation' %s does not protect against"
            " hostile clients. Set 'min-returned' to %d to skip such rounds.",
            *(server_round, count, least, config.aggregation, least),
        )


def fruitless_reasons(record: RoundRecord, *, measured: bool, in_vain: bool = False) -> list[str]:
    """Why a round aggregated no update: a reason for each failure. Empty if it did, or if a simulation prevented it.

    A simulation drops replies and lets clients leave, and unless the links are `measured`, it also delays replies. In a
    run that ends `in_vain`, without any update, leaving is a reason too.
    """
    reasons = [failure["reason"] for failure in record.failures]
    prevented = (*([] if in_vain else [AWAY]), *([] if measured else [LATE]))
    simulated = any(reason == DROPPED or reason.endswith(prevented) for reason in reasons)
    if record.aggregated or simulated:
        return []
    if record.unused:
        reasons.append(f"only {len(record.unused)} of {record.cohort} clients sent a usable update: see 'min-returned'")
    return reasons or [NOBODY_CONNECTED]


def run_failed(rounds: Sequence[Sequence[str]], *, in_vain: bool) -> RunFailed:
    """Error of a run whose last rounds, or all of it (`in_vain`), had no update, from the reasons in these rounds."""
    reasons = [reason for of_round in rounds for reason in of_round]
    [(reason, count)] = Counter(reasons).most_common(1)
    number = "all its rounds" if in_vain else f"{len(rounds)} rounds in a row"
    share = f", {count} of {len(reasons)} times" if len(reasons) > 1 else ""
    return RunFailed(f"The run has failed: in {number} no client brought a usable update. The reason{share}: {reason}")


def remarks(rows: Sequence[Row], context: RunContext) -> list[str]:
    """Sentences about a run that has ended: an epsilon that is not counted, and a last loss that is not finite.

    `rows` are its rounds.
    """
    sentences = []
    if context.privacy.dp_clip_norm and context.run.initial_model:
        sentences.append(
            "Add the epsilon of the run that trained the 'initial-model', if that was with data of these clients: this "
            "run's epsilon does not count it."
        )
    losses = [(row["loss"], row["round"]) for row in rows if "loss" in row]
    if losses and not (losses[-1][0] is not None and math.isfinite(losses[-1][0])):
        sentences.append(
            "Check the learning rate and the data: the loss of the last evaluation, in round "
            f"{losses[-1][1]}, is not finite."
        )
    return sentences
