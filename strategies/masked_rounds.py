"""Masked rounds: the statement of a round's masks, and the second exchange, which unmasks the sum of its updates.

A simulation computes no masks, because the integers of common-k have the same sum without. It counts the same bytes,
and the time of the second exchange.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from operator import itemgetter

import numpy as np

from fedsel_app.exact_sums import CohortSum
from fedsel_app.messages.answers import UnmaskAnswer
from fedsel_app.messages.instructions import UnmaskInstruction
from fedsel_app.messages.reported_values import one_line
from fedsel_app.network.links import Work
from fedsel_app.records.schema import Failure
from fedsel_app.secure_sums.shamir import SHARE_BYTES
from fedsel_app.secure_sums.statement import Masked, Statement, box_bytes, model_hash, stated
from fedsel_app.wire import ring
from fedsel_app.wire.codec import Update, WireError
from fedsel_app.wire.entries import RoundEntries, decode_entries
from strategies.opened import Dispatch
from strategies.roster import NOBODY, Ints
from strategies.round.federation import NO_MODEL, NodeError
from strategies.round.replies.training import Replies
from strategies.round.unmasking import LostSumError, Sum

LOGGER = logging.getLogger("fedsel")
RESTARTED = "has no key of this run"
"""Words of a client that has restarted, and must enrol again."""


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
    entries = next(iter(instructions.values())).entries or b""
    model = b"" if simulated else model_hash([array.tobytes() for array in opened.sent_to_train.arrays])
    run: bytes = getattr(clients.federation, "run", b"")
    statement = Statement(run, number, model, (), 0, 0, sha256(entries).hexdigest()).among(cohort)
    if not simulated:
        instructions = {
            each: replace(instructions[each], masks=stated(statement, clients.keys, each)) for each in cohort
        }
    wanted = min(dispatch.wanted, len(cohort))
    return replace(dispatch, instructions=instructions, wanted=wanted, statement=statement)


def unmasked(dispatch: Dispatch, replies: Replies) -> Replies:
    """The replies with the sum of their updates, which a second exchange unmasks.

    If too few clients are left for it, or too few tell their shares, there is no sum: all have failed, and the log says
    why.
    """
    opened, statement = dispatch.opened, dispatch.statement
    if statement is None:
        return replies
    if opened.clients.federation.simulated:
        return _simulated(dispatch, statement, replies)
    opened.clients.enrol_again(each["client"] for each in replies.failures if RESTARTED in each["reason"])
    sent = zip(replies.clients.tolist(), replies.decoded, strict=True)
    masked = {client: decoded.masked for client, decoded in sent if decoded.masked is not None}
    try:
        numbers = _sum(dispatch, statement, masked)
    except LostSumError as error:
        reason = one_line(error)
        LOGGER.warning("Round %d is lost: %s. The run goes on.", statement.server_round, reason)
        return _only(dispatch, replies, NOBODY, reason)
    charge(dispatch, statement, replies.clients)
    return _with_sum(dispatch, _only(dispatch, replies, replies.clients, ""), numbers)


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
        wasted_s=replies.wasted_s,
    )


def _sum(dispatch: Dispatch, statement: Statement, masked: Mapping[int, Masked]) -> ring.Integers:
    """The unmasked numbers of the round. Raises LostSumError."""
    size, bits = _form(dispatch)
    least, cohort = dispatch.opened.context.privacy.least_cohort, len(statement.cohort)
    total = Sum(statement, masked, size, bits)
    if len(masked) < least:
        raise LostSumError(f"{len(masked)} of {cohort} clients replied, and a sum has at least {least}")
    if short := total.short_of_holders():
        raise LostSumError(
            f"{len(masked)} of {cohort} clients replied, too few for the threshold of {statement.threshold} clients "
            f"with shares of client {short[0]}"
        )
    return total.unmasked(_shares(dispatch, total)).astype(np.int32)


def _shares(dispatch: Dispatch, total: Sum) -> dict[int, bytes]:
    """The shares that clients tell."""
    number = total.statement.server_round
    asked = {}
    for client in total.masked:
        question = total.question(client)
        answered, gone = (",".join(map(str, clients)) for clients in (question.answered, question.gone))
        asked[client] = UnmaskInstruction(number, answered, gone, b"".join(question.boxes.values()))
    answers = dict[int, bytes]()
    for client, answer in dispatch.opened.clients.ask(asked, NO_MODEL).items():
        try:
            if isinstance(answer, NodeError):
                raise WireError(str(answer))
            shares = UnmaskAnswer.from_config(answer.metrics)
            if shares.closed >= 0:
                raise WireError(f"the box of client {shares.closed} does not open for it")
            answers[client] = shares.shares
        except WireError as error:
            LOGGER.warning("Round %d: client %d tells no shares: %s", number, client, one_line(error))
    return answers


def _form(dispatch: Dispatch) -> tuple[int, int]:
    """Number of a client's masked numbers, and bits of the ring: its multiples, and the vector with its exponent."""
    return dispatch.opened.reader.masked_form(next(iter(dispatch.instructions.values())))


def _entries(dispatch: Dispatch) -> RoundEntries:
    instruction = next(iter(dispatch.instructions.values()))
    return decode_entries(instruction.entries or b"", dispatch.opened.context.initial.size, instruction.server_round)


def _with_sum(dispatch: Dispatch, replies: Replies, numbers: ring.Integers) -> Replies:
    """The replies with the sum as exact sums have it, and the number of clients with each exponent."""
    entries, size = _entries(dispatch), dispatch.opened.context.initial.size
    counts = numbers[-ring.PLACES :].astype(np.int64)
    if counts.min() < 0 or counts.sum() != replies.clients.size:
        LOGGER.warning("Round %d: a client lied about its exponent; the grid stays.", dispatch.opened.info.number)
        counts = np.zeros_like(counts)
    values = np.ldexp(numbers[: -ring.PLACES].astype(np.float64), entries.grid)
    total = CohortSum()
    total.add(dispatch.opened.server.solver.terms([Update(size, entries.indices, values)], 1.0))
    total.count = replies.clients.size
    return replace(replies, total=total, counts=counts)


def _simulated(dispatch: Dispatch, statement: Statement, replies: Replies) -> Replies:
    """The replies of a simulation, if a masked round had a sum of them."""
    inside = set(replies.clients.tolist())
    holders = [len(inside.intersection(statement.holders(each))) for each in inside]
    if len(inside) < dispatch.opened.context.privacy.least_cohort or min(holders) < statement.threshold:
        return _only(dispatch, replies, NOBODY, f"only {len(inside)} clients replied")
    charge(dispatch, statement, replies.clients)
    return replies


def charge(dispatch: Dispatch, statement: Statement, clients: Ints) -> None:
    """Add the bytes of the second exchange to the round's record, and its time on a simulated clock."""
    opened, inside, neighbours = dispatch.opened, set(clients.tolist()), statement.neighbours
    record, roster, links = opened.record, opened.roster, opened.context.links
    there = {each: inside.intersection(neighbours[each]) for each in inside}
    seeds = {each: 1 + len(neighbours[each]) - len(there[each]) for each in inside}
    shares = [seeds[each] + sum(map(seeds.__getitem__, there[each])) for each in clients.tolist()]
    boxes = [box_bytes(len(neighbours[each])) * len(there[each]) for each in clients.tolist()]
    told = np.array(shares, np.int64) * SHARE_BYTES
    record.uplink_bytes += int(told.sum())
    record.downlink_bytes += sum(boxes)
    if not links.measured:
        speeds = roster.downlink_bits_per_s[clients], roster.uplink_bits_per_s[clients]
        work = Work(clients, np.zeros(clients.size), *speeds, max(boxes), told, told, opened.begun_s)
        record.round_s += float(links.finish_s(work, np.zeros(clients.size))[0].max())
