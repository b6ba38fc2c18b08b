"""Replies: what the clients send after training is decoded, checked and put in the order of their ids."""

import logging
from collections.abc import Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import AggregationConfig
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.reported_values import one_line
from fedsel_app.messages.scalars import Report
from fedsel_app.network.clock import FORWARD_STEPS, RoundWork
from fedsel_app.records.schema import Failure
from fedsel_app.wire import codec
from strategies.roster import Floats, Ints, Roster
from strategies.round import validation
from strategies.round.federation import Reply
from strategies.round.last_claims import LastClaims
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")
LOSS = "loss"
THREADS = 4
"""Threads that decode replies; most of the time none of them holds Python's lock."""
DIVISIBLE_SIZE = 1 << 16
"""Parameters of a model from which on several threads decode sooner than one."""
Sent = tuple[codec.Update, int]
"""Content of a payload, and its bytes."""


@dataclass(frozen=True)
class Replies:
    """Usable replies in ascending order of client id, and the clients without one.

    Attributes
    ----------
    clients : int64 (r,)
    updates : r updates
    controls : r changes of control variates, where the solver sends them
    answers : r answers, the numbers beside the updates
    asked_reports : reports in every answer
    uplink_bytes, uplink_value_bytes : int64 (r,), bytes of each upload: as measured, and as 4 bytes a value
    failures : clients without a usable reply, and the reason
    unused : int64, clients whose usable reply is not aggregated: others were faster, or there were too few of them
    waited_s : least duration of the round's training, because a client was waited for in vain
    statistics : r BatchNorm statistics, float64 (B,) each, where the clients were asked for them
    """

    clients: Ints
    updates: tuple[codec.Update, ...]
    controls: tuple[codec.Update, ...]
    answers: tuple[TrainAnswer, ...]
    asked_reports: tuple[Report, ...]
    uplink_bytes: Ints
    uplink_value_bytes: Ints
    failures: list[Failure]
    unused: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    waited_s: float = 0.0
    statistics: tuple[Floats, ...] = ()

    @property
    def losses(self) -> Floats:
        """Mean training losses, float64 (r,); NaN where one is unknown."""
        return np.array([answer.loss for answer in self.answers], np.float64)

    @property
    def work_steps(self) -> Floats:
        """Computing of each client in local steps, float64 (r,)."""
        return np.array([answer.work_steps for answer in self.answers], np.float64)

    @property
    def reports(self) -> Mapping[str, Floats]:
        """Reports by name, float64 (r,) each."""
        return {
            report: np.array([answer.reports[report] for answer in self.answers], np.float64)
            for report in self.asked_reports
        }

    @property
    def broken(self) -> Ints:
        """Ids of the clients without a usable reply."""
        return np.array([failure["client"] for failure in self.failures], np.int64)

    @property
    def failed(self) -> Ints:
        """Ids of the clients whose training is not aggregated, ascending."""
        return np.union1d(self.broken, self.unused)

    def work(self, roster: Roster, probe_s: Floats) -> RoundWork:
        """Work of these replies for the clock, after probes of `probe_s` seconds."""
        measured = roster.uplink_bits_per_s[self.clients], roster.step_s[self.clients]
        return RoundWork(*measured, self.work_steps, self.uplink_bytes, self.uplink_value_bytes, probe_s, self.waited_s)

    def only(self, clients: Ints) -> "Replies":
        """Keep the replies of `clients`, ascending ids that are all among them, and no failure."""
        place = np.searchsorted(self.clients, clients)
        return Replies(
            clients=self.clients[place],
            updates=tuple(self.updates[index] for index in place),
            controls=tuple(self.controls[index] for index in place) if self.controls else (),
            answers=tuple(self.answers[index] for index in place),
            asked_reports=self.asked_reports,
            uplink_bytes=self.uplink_bytes[place],
            uplink_value_bytes=self.uplink_value_bytes[place],
            failures=[],
            statistics=tuple(self.statistics[index] for index in place) if self.statistics else (),
        )


def collect(
    replies: Mapping[int, Reply],
    selected: Ints,
    server_round: int,
    size: int,
    reports: Iterable[Report],
    *,
    seed: int | None = None,
    payloads: int = 1,
    max_norm: float = 0.0,
    variances: NDArray[np.bool_] | None = None,
    losses_optional: bool = False,
) -> Replies:
    """Decode the reply of every selected client; what is malformed is a failure of that client.

    `seed` is the run's; of two `payloads` the second is a dense change of the client's control variate. An update, or
    such a change, whose norm is above `max_norm` (0: any) times the cohort's median is left out as well. With
    `variances`, (B,), every reply must end with BatchNorm statistics, of which those are variances. With
    `losses_optional` a client need not tell its loss.
    """
    arrays = payloads + (variances is not None)
    reports = tuple(sorted(reports))

    def decode(client: int) -> tuple[TrainAnswer, list[Sent], Floats | None] | Failure:
        try:
            if client not in replies:
                raise codec.WireError("no reply")
            reply, asked = replies[client], (client, server_round, size)
            answer, update, sent_bytes = validation.decode(
                reply, *asked, reports, seed=seed, payloads=arrays, loss_optional=losses_optional
            )
            last = None
            if variances is not None:
                last = validation.unpack_statistics(reply.tensors[-1:], variances)
            changes = [validation.decode_payload(tensor, *asked) for tensor in reply.tensors[1:payloads]]
            return answer, [(update, sent_bytes), *changes], last
        except codec.WireError as error:
            return {"client": client, "reason": one_line(error)}

    answers: dict[int, TrainAnswer] = {}
    parts: dict[int, list[Sent]] = {}
    statistics: dict[int, Floats] = {}
    failures: list[Failure] = []
    with ThreadPoolExecutor(THREADS if size >= DIVISIBLE_SIZE else 1) as threads:
        for client, decoded in zip(selected.tolist(), threads.map(decode, selected.tolist()), strict=True):
            if isinstance(decoded, dict):
                failures.append(decoded)
                continue
            answers[client], parts[client], last = decoded
            if last is not None:
                statistics[client] = last
    for place in range(payloads if max_norm else 0):
        for client, reason in too_large({client: sent[place][0].norm() for client, sent in parts.items()}, max_norm):
            failures.append({"client": client, "reason": reason})
            del parts[client]
    failures.sort(key=itemgetter("client"))
    for failure in failures:
        LOGGER.warning("Round %d: client %d is left out: %s", server_round, failure["client"], failure["reason"])
    usable = sorted(parts)
    return Replies(
        clients=np.array(usable, np.int64),
        updates=tuple(parts[client][0][0] for client in usable),
        controls=tuple(change for client in usable for change, _ in parts[client][1:]),
        answers=tuple(answers[client] for client in usable),
        asked_reports=reports,
        uplink_bytes=np.array([sum(sent for _, sent in parts[client]) for client in usable], np.int64),
        uplink_value_bytes=np.array(
            [sum(codec.bits_of_values(part) for part, _ in parts[client]) // 8 for client in usable], np.int64
        ),
        failures=failures,
        statistics=tuple(statistics[client] for client in usable if client in statistics),
    )


class ReplyCollector:
    """Reply collector: decodes the replies of a run's cohorts, and the links learn from them.

    Parameters
    ----------
    reports : numbers that every reply must bring: those of the method, and of the local solver
    payloads : wire payloads that every reply must have

    Attributes
    ----------
    claims : the losses and reports that clients sent last
    """

    def __init__(self, context: RunContext, roster: Roster, reports: frozenset[Report], payloads: int) -> None:
        self._context, self._roster, self._reports, self._payloads = context, roster, reports, payloads
        self.claims = LastClaims(context.run.clients, (LOSS, *Report), context.claims.loss_clip)

    def collect(
        self,
        answered: Mapping[int, Reply],
        asked: Ints,
        server_round: int,
        statistics: bool = False,
        local_epochs: int = 0,
    ) -> Replies:
        """Decode and check the replies of the `asked` clients, with BatchNorm `statistics` if these were asked for.

        Where they were to train for `local_epochs` above 0, their work is bounded by these.
        """
        context = self._context
        replies = collect(
            answered,
            asked,
            server_round,
            context.initial.size,
            self._reports,
            seed=context.run.seed,
            payloads=self._payloads,
            max_norm=0.0 if context.privacy.dp_clip_norm else context.aggregation.max_update_norm,
            variances=context.buffers > 0.0 if statistics else None,
            losses_optional=context.losses_optional,
        )
        replies = replace(replies, answers=self._bounded(replies, server_round, local_epochs))
        for client, answer in zip(replies.clients.tolist(), replies.answers, strict=True):
            context.links.learn(client, answer)
        return replies

    def _bounded(self, replies: Replies, server_round: int, local_epochs: int) -> tuple[TrainAnswer, ...]:
        """The answers as far as the server believes them: effort by its own settings, losses by `loss-clip`."""
        training, clients, asked = self._context.training, replies.clients, replies.asked_reports
        losses = self.claims.bounded(LOSS, clients, replies.losses)
        numbers = {report: self.claims.bounded(report, clients, replies.reports[report]) for report in asked}
        answers = []
        for place, (client, answer) in enumerate(zip(clients.tolist(), replies.answers, strict=True)):
            examples = int(self._roster.examples[client])
            steps = training.steps(examples, local_epochs)
            most = most_work_steps(steps, training.passes(examples), asked)
            if answer.work_steps > most:
                LOGGER.warning(
                    "Round %d: client %d says that it computed %g steps; %g count, as its settings take no more.",
                    *(server_round, client, answer.work_steps, most),
                )
            reports = {report: float(said[place]) for report, said in numbers.items()}
            if Report.EFFECTIVE_STEPS in reports:
                reports[Report.EFFECTIVE_STEPS] = training.effective_steps(steps)
            work_steps = min(answer.work_steps, most)
            answers.append(replace(answer, loss=float(losses[place]), work_steps=work_steps, reports=reports))
        return tuple(answers)


def most_work_steps(steps: int, passes: int, reports: Container[str]) -> float:
    """All that a client computes for `steps` local steps and these `reports`, each of `passes` mini-batches."""
    extra_steps = 0.0
    if Report.INITIAL_LOSS in reports or Report.RMS_LOSS in reports:
        extra_steps += passes * FORWARD_STEPS
    if Report.GRADIENT_DEVIATION in reports:
        extra_steps += passes
    return steps + extra_steps


def too_large(norms: Mapping[int, float], multiple: float) -> list[tuple[int, str]]:
    """Clients whose norm is above `multiple` times the median, with a sentence. Of two norms the less is the median.

    Where the median is 0, or `multiple` is, there are none.
    """
    if not norms:
        return []
    median = sorted(norms.values())[(len(norms) - 1) // 2]
    bound = multiple * median
    return [
        (client, f"an update of norm {norm:.3g}, where the round's median is {median:.3g}: see 'max-update-norm'")
        for client, norm in norms.items()
        if norm > bound > 0.0
    ]


def warn_of_few_updates(count: int, server_round: int, config: AggregationConfig) -> None:
    """Log a round that has no update to aggregate, or fewer than the setting `aggregation` needs."""
    if not count:
        LOGGER.warning("Round %d: too little came back; the model stays as it is.", server_round)
    elif count < (least := config.least_updates):
        LOGGER.warning(
            "Round %d: %d updates came back, and among fewer than %d the 'aggregation' %s does not withstand "
            "hostile clients ('krum-malicious' is %d). Set 'min-returned' to %d to leave such rounds out.",
            *(server_round, count, least, config.aggregation, config.krum_malicious, least),
        )
