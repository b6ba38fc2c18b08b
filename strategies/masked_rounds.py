"""Masked rounds: the statement of a round's masks, and the second exchange, which unmasks the sum of its updates.

A simulation computes no masks, because the integers of common-k have the same sum without. It counts the same bytes,
and the time of the second exchange.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.answers import UnmaskAnswer
from fedsel_app.messages.instructions import MaskInstruction, TrainInstruction, UnmaskInstruction
from fedsel_app.messages.reported_values import one_line
from fedsel_app.network.links import Work
from fedsel_app.records.schema import Failure
from fedsel_app.secure_sums.shares import SHARE_BYTES
from fedsel_app.secure_sums.statement import Masked, Statement, box_bytes, model_hash, stated
from fedsel_app.wire import ring
from fedsel_app.wire.codec import Update, WireError
from fedsel_app.wire.entries import decode_entries
from strategies.opened import Dispatch
from strategies.roster import NOBODY, Ints
from strategies.round.federation import NO_MODEL, NodeError, Reply
from strategies.round.replies.training import Replies, read_masked
from strategies.round.unmasking import LostSumError, Sum

LOGGER = logging.getLogger("fedsel")
MOST_ATTEMPTS = 3
"""Most attempts of a round."""
RESTARTED = "has no key of this run"
"""Words of a client that has restarted, and must enrol again."""
UNSIGNED = re.compile(r"The key of client (\d+) is missing, or not signed")
"""Words of a client that refuses the key of another. If most neighbours do, the other is left out until it restarts."""


def begin(dispatch: Dispatch) -> Dispatch | None:
    """The dispatch whose instructions state the masks of its cohort; None if too few clients have a key of the run."""
    opened, instructions = dispatch.opened, dispatch.instructions
    clients, simulated = opened.clients, opened.clients.federation.simulated
    cohort = tuple(each for each in instructions if simulated or each in clients.keys)
    least, number = opened.context.privacy.least_cohort, opened.info.number
    if len(cohort) < least:
        reason = f"a secure sum needs {least} clients with a signed key of the run, and {len(cohort)} were selected"
        LOGGER.warning("Round %d: %s; the model does not change.", number, reason)
        opened.record.failures += [Failure(client=each, reason=reason) for each in instructions]
        return None
    model = b"" if simulated else model_hash([array.tobytes() for array in opened.sent_to_train.arrays])
    run: bytes = getattr(clients.federation, "run", b"")
    statement = Statement(run, number, 0, model, (), 0, 0, next(iter(instructions.values())).summed).among(cohort)
    if not simulated:
        instructions = {
            each: replace(instructions[each], masks=stated(statement, clients.keys, each)) for each in cohort
        }
    wanted = min(dispatch.wanted, len(cohort))
    return replace(dispatch, instructions=instructions, wanted=wanted, statement=statement)


def unmasked(dispatch: Dispatch, replies: Replies) -> Replies:
    """The replies with the sum of their updates, which a second exchange unmasks.

    If too few clients are left for it, or too few tell their shares, the others mask the same numbers once more. Those
    who are in no sum have failed; if there is none, all have, and the log says why.
    """
    opened, statement = dispatch.opened, dispatch.statement
    if statement is None:
        return replies
    if opened.clients.federation.simulated:
        return _simulated(dispatch, statement, replies)
    opened.clients.enrol_again(each["client"] for each in replies.failures if RESTARTED in each["reason"])
    refused = {each["client"]: int(key[1]) for each in replies.failures if (key := UNSIGNED.search(each["reason"]))}
    for client, others in statement.neighbours.items():
        if 2 * sum(refused.get(each) == client for each in others) > len(others):
            LOGGER.warning("Round %d: client %d is left out: its key is not signed.", statement.server_round, client)
            opened.clients.keys.pop(client, None)
    sent = zip(replies.clients.tolist(), replies.decoded, strict=True)
    masked = {client: decoded.masked for client, decoded in sent if decoded.masked is not None}
    reason = "it did not mask again"
    for attempt in range(MOST_ATTEMPTS):
        left = set(masked)
        try:
            numbers = _sum(dispatch, statement, masked, left)
            inside = np.array(sorted(masked), np.int64)
            charge(dispatch, statement, inside)
            return _with_sum(dispatch, _only(dispatch, replies, inside, reason), numbers)
        except LostSumError as error:
            reason = one_line(error)
            LOGGER.warning("Round %d, attempt %d: no sum: %s.", statement.server_round, attempt + 1, reason)
        if len(left) < opened.context.privacy.least_cohort:
            break
        statement, masked = _again(dispatch, statement, sorted(left), attempt + 1)
    LOGGER.warning("Round %d is lost: %s. The run goes on.", statement.server_round, reason)
    return _only(dispatch, replies, NOBODY, reason)


def _only(dispatch: Dispatch, replies: Replies, inside: Ints, reason: str) -> Replies:
    """The replies of clients that are in a sum. The others have failed for this reason."""
    failures = [*replies.failures]
    for clients, why in (
        (np.setdiff1d(replies.clients, inside), f"its update is in no sum: {reason}"),
        (np.setdiff1d(dispatch.selection.clients, list(dispatch.instructions)), "it has no signed key of the run"),
    ):
        failures += [Failure(client=client, reason=why) for client in clients.tolist()]
    return replace(
        replies.only(inside),
        failures=sorted(failures, key=itemgetter("client")),
        unused=replies.unused,
        finish_s=replies.finish_s[np.isin(replies.clients, inside)] if replies.finish_s.size else replies.finish_s,
        waited_s=replies.waited_s,
    )


def _sum(dispatch: Dispatch, statement: Statement, masked: Mapping[int, Masked], left: set[int]) -> ring.Integers:
    """The unmasked numbers of an attempt. After a LostSumError, `left` has those who may mask again."""
    size, bits = _form(dispatch)
    least = dispatch.opened.context.privacy.least_cohort
    total = Sum(statement, masked, size, bits)
    if len(masked) < least:
        raise LostSumError(f"{len(masked)} of {len(statement.cohort)} clients replied, and a sum has at least {least}")
    if short := total.short_of_holders():
        raise LostSumError(
            f"{len(masked)} of {len(statement.cohort)} clients replied, too few for the threshold of "
            f"{statement.threshold} clients with shares of client {short[0]}"
        )
    answers, accused = _shares(dispatch, total)
    left -= answers.keys() | accused
    return total.unmasked(answers).astype(np.int32)


def _shares(dispatch: Dispatch, total: Sum) -> tuple[dict[int, bytes], set[int]]:
    """The shares that clients tell, and the clients whose boxes do not open for more than one other."""
    statement, number = total.statement, total.statement.server_round
    asked = {}
    for client in total.masked:
        question = total.question(client)
        answered, gone = (",".join(map(str, clients)) for clients in (question.answered, question.gone))
        boxes = b"".join(question.boxes.values())
        asked[client] = UnmaskInstruction(number, statement.attempt, answered, gone, boxes)
    answers, complaints = dict[int, bytes](), list[int]()
    for client, answer in dispatch.opened.clients.ask(asked, NO_MODEL).items():
        try:
            if isinstance(answer, NodeError):
                raise WireError(str(answer))
            told_shares = UnmaskAnswer.from_config(answer.metrics)
            if told_shares.closed >= 0:
                complaints.append(told_shares.closed)
                raise WireError(f"the box of client {told_shares.closed} does not open for it")
            answers[client] = told_shares.shares
        except WireError as error:
            LOGGER.warning("Round %d: client %d tells no shares: %s", number, client, one_line(error))
    return answers, {client for client in complaints if complaints.count(client) > 1}


def _again(
    dispatch: Dispatch, before: Statement, cohort: Sequence[int], attempt: int
) -> tuple[Statement, dict[int, Masked]]:
    """Let a smaller cohort mask the same numbers once more: the statement, and what came."""
    clients, form = dispatch.opened.clients, _form(dispatch)
    statement = before.among(cohort, attempt)
    asked = {
        each: MaskInstruction(before.server_round, stated(statement, clients.keys, each))
        for each in cohort
        if each in clients.nodes
    }
    masked = {}
    for client, answer in clients.ask(asked, NO_MODEL).items():
        try:
            if not isinstance(answer, Reply):
                raise WireError(str(answer))
            masked[client] = read_masked(answer.tensors, asked[client].masks, *form)
        except WireError as error:
            LOGGER.warning("Round %d: client %d does not mask again: %s", before.server_round, client, one_line(error))
    return statement, masked


def _form(dispatch: Dispatch) -> tuple[int, int]:
    """Number of a client's masked numbers, and bits of the ring."""
    return dispatch.opened.reader.masked_form(_instruction(dispatch))


def _instruction(dispatch: Dispatch) -> TrainInstruction:
    """The instruction of a client; all are told the same of the sum."""
    return next(iter(dispatch.instructions.values()))


def _with_sum(dispatch: Dispatch, replies: Replies, numbers: ring.Integers) -> Replies:
    """The replies with the sum as exact sums have it, and the number of clients with each exponent."""
    instruction, size = _instruction(dispatch), dispatch.opened.context.initial.size
    entries = decode_entries(instruction.entries or b"", size, instruction.server_round)
    integers, counts, further = np.split(numbers, np.cumsum([entries.count(size), ring.PLACES]))
    values = np.ldexp(integers.astype(np.float64), entries.grid)
    total = CohortSum()
    total.add(dispatch.opened.server.solver.terms([Update(size, entries.indices, values)], 1.0))
    total.count = replies.clients.size
    replies = replace(replies, total=total, counts=_counts(dispatch, replies, counts))
    return _with_buffers(dispatch, replies, further) if further.size else replies


def _with_buffers(dispatch: Dispatch, replies: Replies, numbers: NDArray[np.signedinteger]) -> Replies:
    """The replies with the mean of the clients' buffers from their summed `numbers`."""
    opened, instruction = dispatch.opened, _instruction(dispatch)
    section = opened.reader.section(instruction, opened.model.buffers)
    if section is None:
        return replies
    weights = math.fsum(map(section.entries.weight, replies.examples.tolist()))
    counts = _counts(dispatch, replies, numbers[-ring.PLACES :])
    return replace(replies, buffers=section.mean(numbers, weights), buffers_counts=counts)


def _counts(dispatch: Dispatch, replies: Replies, counts: NDArray[np.signedinteger]) -> Ints:
    """The number of clients with each exponent, or none if their sum cannot be that."""
    if counts.min() < 0 or counts.sum() != replies.clients.size:
        LOGGER.warning("Round %d: a client lied about its exponent; the grid stays.", dispatch.opened.info.number)
        return np.zeros(ring.PLACES, np.int64)
    return counts.astype(np.int64)


def _simulated(dispatch: Dispatch, statement: Statement, replies: Replies) -> Replies:
    """The replies of a simulation, if a masked round had a sum of them."""
    inside = set(replies.clients.tolist())
    if len(inside) >= dispatch.opened.context.privacy.least_cohort:
        holders = [len(inside.intersection(statement.holders(each))) for each in inside]
        again = min(holders) < statement.threshold
        charge(dispatch, statement.among(inside) if again else statement, replies.clients)
        section = dispatch.opened.reader.section(_instruction(dispatch), dispatch.opened.model.buffers)
        if section is None:
            return replies
        sent = zip(replies.statistics, replies.examples.tolist(), strict=True)
        return _with_buffers(dispatch, replies, np.sum([section.numbers(*each) for each in sent], axis=0))
    return _only(dispatch, replies, NOBODY, f"only {len(inside)} clients replied")


def charge(dispatch: Dispatch, statement: Statement, clients: Ints) -> None:
    """Add the bytes of the second exchange to the round's record, and its time on a simulated clock."""
    opened, inside, neighbours = dispatch.opened, set(clients.tolist()), statement.neighbours
    record, roster, links = opened.record, opened.roster, opened.context.links
    there = {each: inside.intersection(neighbours[each]) for each in inside}
    seeds = {each: 1 + len(neighbours[each]) - len(there[each]) for each in inside}
    shares = [seeds[each] + sum(map(seeds.__getitem__, there[each])) for each in clients.tolist()]
    boxes = [box_bytes(len(neighbours[each])) * len(there[each]) for each in clients.tolist()]
    share_bytes = np.array(shares, np.int64) * SHARE_BYTES
    record.uplink_bytes += int(share_bytes.sum())
    record.downlink_bytes += sum(boxes)
    if not links.measured:
        speeds = roster.downlink_bits_per_s[clients], roster.uplink_bits_per_s[clients]
        work = Work(clients, np.zeros(clients.size), *speeds, max(boxes), share_bytes, share_bytes, opened.begun_s)
        record.round_s += float(links.finish_s(work, np.zeros(clients.size))[0].max())
