"""Replies: decodes and checks what clients send after training, and sorts it by client id."""

import logging
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.answers import FORWARD_STEPS, TrainAnswer, sent_bounds
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.reported_values import one_line
from fedsel_app.messages.scalars import METRIC, Report
from fedsel_app.network.links import Work
from fedsel_app.records.schema import Failure, RoundRecord
from fedsel_app.secure_sums.buffers import BufferSection
from fedsel_app.secure_sums.shares import parameters
from fedsel_app.secure_sums.statement import Masked, masked_sizes, told_degree
from fedsel_app.wire import codec, ring
from fedsel_app.wire.entries import RoundEntries, decode_entries, exponent_in
from strategies.checkpoint import Composed, Stateful
from strategies.roster import Floats, Ints, Roster
from strategies.round.clients import SCALAR_BYTES
from strategies.round.federation import Answer, NodeError, Reply
from strategies.round.replies.attacks import attacked
from strategies.round.replies.bounds import NormBounds
from strategies.round.replies.deadline import DROPPED, accept, left, simulated_dropouts
from strategies.round.replies.values import (
    LOSS,
    LastReported,
    decode_payload,
    log_impossible,
    refuse_large,
    unpack_array,
    unpack_buffers,
)
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")
THREADS = 4
"""Threads that decode replies; they run without Python's lock most of the time."""
DIVISIBLE_SIZE = 1 << 16
"""Smallest model size, in parameters, for which several threads decode faster than one."""


class Decoded(NamedTuple):
    """Valid reply of a client.

    Attributes
    ----------
    answer : the numbers beside the update
    payloads : the update and, if the solver sends one, the change of a control variate
    sent_bytes : bytes of the payloads
    statistics : buffers after training, float64 (B,), if the client was asked for them
    sums : sums over clients, this one included, that a simulated worker sent in place of the payloads
    steps : local steps that the client took, by the settings and its instruction
    masked : what a client with masks sent in place of the payloads
    """

    answer: TrainAnswer
    payloads: tuple[codec.Update, ...]
    sent_bytes: int
    statistics: Floats | None
    sums: CohortSum | None = None
    steps: int = 0
    masked: Masked | None = None

    @property
    def norms(self) -> tuple[float, ...]:
        """Norm of each payload."""
        if self.payloads:
            return tuple(payload.norm() for payload in self.payloads)
        norms = self.answer.norm, self.answer.control_norm
        return tuple(norm for norm in norms if norm is not None)

    @property
    def exponent(self) -> int | None:
        """Exponent of the largest value of an update in multiples of a grid; None of another update."""
        return exponent_in(self.payloads[0]) if self.payloads else self.answer.exponent

    @property
    def value_bits(self) -> int:
        """Bits of the payloads' values, as papers count them."""
        return sum(map(codec.bits_of_values, self.payloads)) if self.payloads else self.answer.value_bits or 0


ReplyResult = Decoded | codec.WireError
"""A reply as it was decoded, or what is wrong with it."""


@dataclass(frozen=True)
class Replies:
    """Usable replies in ascending order of client id, and the clients without a usable reply.

    Attributes
    ----------
    clients : int64 (r,)
    decoded : their r replies
    examples : int64 (r,), their training examples, as the roster counts them
    asked_reports : reports and metrics in every answer
    failures : clients without a usable reply, and the reason
    unused : int64, clients whose usable reply is not aggregated: others were faster, or too few clients replied
    staleness : int64 (r,), steps of the server since the models from which they began; empty: none
    starts : these models, float32 (N,) each; empty: the global model
    finish_s : float64 (r,), seconds until each reply arrived; empty if the clock has not been asked
    waited_s : minimal duration of the round in seconds, because the server waited for a client that did not reply
    total : exact sums over these r clients, if workers have added some of their payloads, or they were masked
    counts : with masks, number of clients with each exponent, int64 (PLACES,)
    buffers : with masks, the mean of the clients' buffers, float64 (B,), if they sent any
    buffers_counts : number of clients with each exponent of their buffers' change, int64 (PLACES,)
    """

    clients: Ints
    decoded: tuple[Decoded, ...]
    examples: Ints
    asked_reports: tuple[str, ...]
    failures: list[Failure]
    unused: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    staleness: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    starts: tuple[NDArray[np.float32], ...] = ()
    finish_s: Floats = field(default_factory=lambda: np.zeros(0))
    waited_s: float = 0.0
    total: CohortSum | None = None
    counts: Ints | None = None
    buffers: Floats | None = None
    buffers_counts: Ints | None = None

    @property
    def exponents(self) -> Sequence[int | None]:
        """Exponents of the clients' largest values, in any order."""
        if self.counts is None:
            return [reply.exponent for reply in self.decoded]
        return np.repeat(np.arange(ring.LOWEST, ring.LOWEST + ring.PLACES), self.counts).tolist()

    @property
    def updates(self) -> tuple[codec.Update, ...]:
        """The r updates; none if there is a `total`."""
        return tuple(reply.payloads[0] for reply in self.decoded) if self.total is None else ()

    @property
    def controls(self) -> tuple[codec.Update, ...]:
        """The r changes of control variates, if the solver sends them."""
        return tuple(change for reply in self.decoded for change in reply.payloads[1:])

    @property
    def statistics(self) -> tuple[Floats, ...]:
        """The r BatchNorm statistics, float64 (B,) each, if the clients were asked for them."""
        return tuple(reply.statistics for reply in self.decoded if reply.statistics is not None)

    @property
    def uplink_bytes(self) -> Ints:
        """Measured bytes of each upload, int64 (r,)."""
        return np.array([reply.sent_bytes for reply in self.decoded], np.int64)

    @property
    def uplink_value_bytes(self) -> Ints:
        """Bytes of each upload at 4 bytes a value, int64 (r,)."""
        return np.array([reply.value_bits for reply in self.decoded], np.int64) // 8

    @property
    def losses(self) -> Floats:
        """Mean training losses, float64 (r,); NaN where one is unknown."""
        return np.array([reply.answer.loss for reply in self.decoded], np.float64)

    @property
    def local_steps(self) -> Ints:
        """Local steps of each client, int64 (r,)."""
        return np.array([reply.steps for reply in self.decoded], np.int64)

    @property
    def work_steps(self) -> Floats:
        """Computing of each client in local steps, float64 (r,)."""
        return np.array([reply.answer.work_steps for reply in self.decoded], np.float64)

    @property
    def reports(self) -> Mapping[str, Floats]:
        """Reports by name, float64 (r,) each."""
        return {
            report: np.array([reply.answer.reports[report] for reply in self.decoded], np.float64)
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

    def work(self, roster: Roster, download_bytes: int, begun_s: float = 0.0) -> Work:
        """Work of these replies for the clock: their clients received `download_bytes` each, at `begun_s`."""
        clients = self.clients
        links = roster.downlink_bits_per_s[clients], roster.uplink_bits_per_s[clients]
        compute_s, sent = roster.step_s[clients] * self.work_steps, (self.uplink_bytes, self.uplink_value_bytes)
        return Work(clients, compute_s, *links, download_bytes, *sent, begun_s)

    def only(self, clients: Ints) -> "Replies":
        """Only the replies of `clients` (ascending ids, all with a reply), without failures and times."""
        places = np.searchsorted(self.clients, clients)
        decoded = tuple(self.decoded[place] for place in places)
        return Replies(self.clients[places], decoded, self.examples[places], self.asked_reports, [])

    def charge(self, record: RoundRecord) -> None:
        """Add their bytes and their number to a round's record."""
        record.uplink_bytes += int(self.uplink_bytes.sum())
        record.uplink_value_bytes += int(self.uplink_value_bytes.sum())
        record.probe_bytes += SCALAR_BYTES * len(self.asked_reports) * self.clients.size
        record.client_updates += self.clients.size


class ReplyReader(Composed):
    """Reply reader: decodes, checks and bounds the replies of the cohorts, and updates the links from them.

    Parameters
    ----------
    reports : numbers that every reply must contain, for the method and for the local solver, and metrics
    payloads : number of wire payloads of every reply; a second one is the change of the client's control variate

    Attributes
    ----------
    reported_values : the losses and reports that clients sent last
    norm_bounds : largest norms of the payloads
    """

    def __init__(self, context: RunContext, roster: Roster, reports: Iterable[str], payloads: int) -> None:
        self._context, self._roster, self._payloads = context, roster, payloads
        self._reports = tuple(sorted(reports))
        self._metrics = [report for report in self._reports if report.startswith(METRIC)]
        clipped = (LOSS, *Report, *(name for name in self._metrics if sent_bounds(name)[1] > 1.0))
        self.reported_values = LastReported(context.run.clients, clipped, context.reported_values.loss_clip)
        multiple = 0.0 if context.privacy.dp_clip_norm else context.aggregation.max_update_norm
        initial = float(np.linalg.norm(context.initial.astype(np.float64))) or math.sqrt(context.initial.size)
        self.norm_bounds = NormBounds(payloads, context.run.clients, multiple, initial) if multiple else None

    def parts(self) -> dict[str, Stateful]:
        """The values that clients sent last, and the bounds of norms."""
        bounds: dict[str, Stateful] = {} if self.norm_bounds is None else {"norms": self.norm_bounds}
        return {"reported": self.reported_values} | bounds

    def read(
        self,
        answers: Mapping[int, Answer],
        instructions: Mapping[int, TrainInstruction],
        wanted: int,
        download_bytes: int = 0,
        begun_s: float = 0.0,
    ) -> Replies:
        """The first `wanted` replies of a cohort: decoded, checked and bounded, and none that came too late.

        `instructions` are what the cohort was asked, by ascending client, at `begun_s` on the run's clock, with a
        model of `download_bytes`. A simulation drops some of the replies. A client that leaves after the end of the
        round has not failed by that: it is late, or not used.
        """
        (number,) = {instruction.server_round for instruction in instructions.values()}
        lost = simulated_dropouts(np.array(list(instructions), np.int64), number, self._context)
        answers = {**answers, **dict.fromkeys(lost, NodeError("", DROPPED))}
        replies = self.collect(answers, instructions)
        usable = map(answers.get, replies.clients.tolist())
        arrived_s = np.array([reply.arrived_s for reply in usable if isinstance(reply, Reply)])
        work = replies.work(self._roster, download_bytes, begun_s)
        finish_s, gone = self._context.links.finish_s(work, arrived_s)
        limits = self._context.replies
        gone &= finish_s <= (limits.round_deadline_s or math.inf)
        accepted, late, waited_s = accept(replies.clients[~gone], finish_s[~gone], wanted, limits)
        accepted_s = finish_s[np.searchsorted(replies.clients, accepted)]
        if accepted.size < wanted:
            waited_s = float(finish_s[gone].max(initial=waited_s))
        else:
            gone &= finish_s <= accepted_s.max()
        failures = [*replies.failures, *late, *map(left, replies.clients[gone].tolist(), finish_s[gone].tolist())]
        failed = [failure["client"] for failure in failures]
        return replace(
            replies.only(accepted),
            failures=sorted(failures, key=itemgetter("client")),
            unused=np.setdiff1d(replies.clients, [*accepted, *failed]),
            finish_s=accepted_s,
            waited_s=waited_s,
        )

    def take(
        self,
        results: Mapping[int, ReplyResult],
        instructions: Mapping[int, TrainInstruction],
        server_round: int,
        starts: Mapping[int, NDArray[np.float32]],
    ) -> Replies:
        """The replies that a server takes in `server_round` without waiting for others: checked and bounded.

        `results` are the decoded replies to `instructions` of this round and earlier ones, and `starts` the models from
        which their clients began. With fewer than `min-returned` replies, none is taken.
        """
        replies = self._bounded(self._usable(results, instructions), instructions)
        clients = replies.clients.tolist()
        began = np.array([instructions[client].server_round for client in clients], np.int64)
        if replies.clients.size < self._context.replies.min_returned:
            return replace(replies.only(replies.clients[:0]), failures=replies.failures, unused=replies.clients)
        return replace(replies, staleness=server_round - began, starts=tuple(starts[client] for client in clients))

    def collect(self, answers: Mapping[int, Answer], instructions: Mapping[int, TrainInstruction]) -> Replies:
        """Decode the replies to `instructions`, bound their numbers, and update the links from them.

        The server's own settings bound the work, and `loss-clip` bounds losses and reports.
        """
        return self._bounded(self.decode(answers, instructions), instructions)

    def decode(self, answers: Mapping[int, Answer], instructions: Mapping[int, TrainInstruction]) -> Replies:
        """Decode and check the reply of every client that was asked. A malformed reply is a failure of its client.

        So is an update, or a change of a control variate, with a norm above that of `norm_bounds`.
        """
        return self._usable(self.decode_each(answers, instructions), instructions)

    def _bounded(self, replies: Replies, instructions: Mapping[int, TrainInstruction]) -> Replies:
        values = self.reported_values
        losses = values.bounded(LOSS, replies.clients, replies.losses)
        numbers = {
            report: values.bounded(report, replies.clients, reports) for report, reports in replies.reports.items()
        }
        decoded = []
        for place, (client, reply) in enumerate(zip(replies.clients.tolist(), replies.decoded, strict=True)):
            instruction = instructions[client]
            steps, most = self.steps(client, instruction)
            if reply.answer.work_steps > most:
                LOGGER.warning(
                    "Round %d: client %d reports %g computed steps; %g count, the most that its settings allow.",
                    *(instruction.server_round, client, reply.answer.work_steps, most),
                )
            reports = {report: float(bounded[place]) for report, bounded in numbers.items()}
            if Report.EFFECTIVE_STEPS in reports:
                reports[Report.EFFECTIVE_STEPS] = self._context.training.effective_steps(steps)
            work_steps = min(reply.answer.work_steps, most)
            answer = replace(reply.answer, loss=float(losses[place]), work_steps=work_steps, reports=reports)
            self._context.links.learn(client, answer)
            decoded.append(reply._replace(answer=answer, steps=steps))
        return replace(replies, decoded=tuple(decoded))

    def steps(self, client: int, instruction: TrainInstruction) -> tuple[int, float]:
        """Local steps of a client, and the most computing that can be theirs, with its reports, in local steps."""
        examples, training = math.ceil(self._roster.examples[client]), self._context.training
        least = self._context.admission.least_examples
        steps = instruction.local_steps or training.steps(examples, instruction.local_epochs, least)
        most = most_work_steps(steps, training.passes(examples), self._reports)
        if instruction.metrics:  # its test part is no larger than all its examples
            training_part = 1.0 - instruction.test_part * self._context.partition.holdout_fraction
            most += training.passes(math.ceil(examples / training_part)) * FORWARD_STEPS
        return steps, most

    def decode_each(
        self, answers: Mapping[int, Answer], instructions: Mapping[int, TrainInstruction]
    ) -> dict[int, ReplyResult]:
        """Decode the reply of every client that was asked; in a simulation, attackers lie (setting 'attack')."""
        with ThreadPoolExecutor(THREADS if self._context.initial.size >= DIVISIBLE_SIZE else 1) as threads:
            replies = threads.map(self._decoded, instructions, instructions.values(), map(answers.get, instructions))
            results = dict(zip(instructions, replies, strict=True))
        if not self._context.attack.traits.lies:
            return results
        return attacked(results, {client: asked.server_round for client, asked in instructions.items()}, self._context)

    def _usable(self, results: Mapping[int, ReplyResult], instructions: Mapping[int, TrainInstruction]) -> Replies:
        usable, failures = dict[int, Decoded](), list[Failure]()
        for client, decoded in results.items():
            if isinstance(decoded, Decoded):
                usable[client] = decoded
            else:
                failures.append({"client": client, "reason": one_line(decoded)})
        if usable and self.norm_bounds is not None:
            norms = np.array([decoded.norms for decoded in usable.values()])
            largest = self.norm_bounds.take(np.array(list(usable), np.int64), norms)
            for client, own in zip(list(usable), norms, strict=True):
                if (beyond := np.flatnonzero(own > largest)).size:
                    compared = f"norm {own[beyond[0]]:.3g}, and the largest that counts is {largest[beyond[0]]:.3g}"
                    failures.append({"client": client, "reason": f"its update has {compared}: see 'max-update-norm'"})
                    del usable[client]
        failures.sort(key=itemgetter("client"))
        for failure in failures:
            client, reason = failure["client"], failure["reason"]
            LOGGER.warning("Round %d: client %d is left out: %s", instructions[client].server_round, client, reason)
        clients = np.array(sorted(usable), np.int64)
        decoded_ones = tuple(usable[client] for client in clients.tolist())
        return Replies(clients, decoded_ones, self._roster.examples[clients], self._reports, failures)

    def _decoded(self, client: int, instruction: TrainInstruction, reply: Answer | None) -> ReplyResult:
        """The reply of a client, or the error in it."""
        context = self._context
        try:
            if not isinstance(reply, Reply):
                raise codec.WireError("it sent no reply" if reply is None else str(reply))
            masks = instruction.masks
            payloads = 0 if reply.sums is not None else self._payloads if masks is None else len(Masked._fields)
            count = payloads + (instruction.statistics and masks is None)
            if (came := len(reply.tensors)) != count:
                raise codec.WireError(
                    f"it sent {came} instead of {count} arrays: server and client must run the same app"
                )
            answer = TrainAnswer.from_metrics(reply.metrics, self._reports, loss_optional=context.losses_optional)
            log_impossible({client: reply}, {client: answer.reports}, self._metrics, instruction.server_round)
            if masks is not None:
                size, bits = self.masked_form(instruction)
                masked = read_masked(reply.tensors, masks, size, bits)
                value_bits = self._entries(instruction).count(context.initial.size) * bits
                masked_answer = replace(answer, value_bits=value_bits, exponent=None, control_norm=None)
                if masked_answer.norm is None and context.privacy.clear_number == "norm":
                    raise codec.WireError("it told no possible norm of its update: see 'clear-number'")
                return Decoded(masked_answer, (), sum(map(len, masked)), None, masked=masked)
            sent = self.payloads(client, instruction, reply.tensors[:payloads])
            statistics = None
            if instruction.statistics:
                dtype = context.buffers.dtype.type
                statistics = unpack_buffers(reply.tensors[-1:], context.buffers.size, context.variances, dtype)
            size = sum(size for _, size in sent) if reply.sums is None else answer.payload_bytes or 0
            if context.privacy.masked:
                degree, _ = parameters(self._entries(instruction).clients)
                size = sum(masked_sizes(degree, *self.masked_form(instruction)))
            decoded = Decoded(answer, tuple(update for update, _ in sent), size, statistics, reply.sums)
            for norm in decoded.norms:
                refuse_large(norm)
            return decoded
        except codec.WireError as error:
            return error

    def masked_form(self, instruction: TrainInstruction) -> tuple[int, int]:
        """Number of a client's masked numbers, and bits of the ring.

        The numbers are the multiples of its update, the vector with its exponent, and a section of buffers, if any.
        """
        entries, section = self._entries(instruction), self.section(instruction, self._context.buffers)
        further = 0 if section is None else section.size
        return entries.count(self._context.initial.size) + ring.PLACES + further, entries.bits

    def section(self, instruction: TrainInstruction, buffers: NDArray[np.float32]) -> BufferSection | None:
        """The section of buffers in a client's masked numbers, if it trains from these; None: it sends none."""
        if instruction.buffers_exponent is None:
            return None
        entries = self._entries(instruction)
        return BufferSection(buffers, self._context.variances, instruction.buffers_exponent, entries)

    def _entries(self, instruction: TrainInstruction) -> RoundEntries:
        return decode_entries(instruction.entries or b"", self._context.initial.size, instruction.server_round)

    def payloads(
        self, client: int, instruction: TrainInstruction, tensors: Sequence[bytes]
    ) -> list[tuple[codec.Update, int]]:
        """Decode the payloads in a client's reply; return each update and its number of bytes.

        Raises WireError if one is malformed, or of another client or round.
        """
        context, size, number = self._context, self._context.initial.size, instruction.server_round
        entries = None if instruction.entries is None else decode_entries(instruction.entries, size, number)
        # Only an update has indices that are drawn from the seed, or stated by the server.
        return [
            decode_payload(
                *(tensor, client, number, size, None if place else context.run.seed, None if place else entries),
                value_bytes=context.initial.itemsize,
            )
            for place, tensor in enumerate(tensors)
        ]


def read_masked(tensors: Sequence[bytes], masks: str, size: int, bits: int) -> Masked:
    """What a client sent of `size` masked numbers of `bits`. Raises WireError if it has another form."""
    sizes = masked_sizes(told_degree(masks), size, bits)
    if len(tensors) != len(sizes):
        raise codec.WireError(f"it sent {len(tensors)} instead of {len(sizes)} arrays")
    parts = [unpack_array(tensor, np.uint8, most).tobytes() for tensor, most in zip(tensors, sizes, strict=True)]
    if (came := tuple(map(len, parts))) != sizes:
        raise codec.WireError(f"its masked update has {came} bytes, and it must have {sizes}")
    return Masked(*parts)


def most_work_steps(steps: int, passes: int, reports: Container[str]) -> float:
    """Computing for `steps` local steps and these `reports`, in steps; each report takes `passes` mini-batches."""
    extra_steps = 0.0
    if Report.INITIAL_LOSS in reports or Report.RMS_LOSS in reports:
        extra_steps += passes * FORWARD_STEPS
    if Report.GRADIENT_DEVIATION in reports:
        extra_steps += passes
    return steps + extra_steps
