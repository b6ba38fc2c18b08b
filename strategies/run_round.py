"""One round, from the connected clients to its record: HeteRo-Select's Algorithm 1 with exchangeable parts.

`run_round` runs a whole round. Its halves are `configure` and `aggregate`. Flower's legacy server calls them through
`configure_fit` and `aggregate_fit` of every method, and asks the clients between them (see `strategies.base`).
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fedsel_app.network.links import SimulatedLinks
from fedsel_app.records.schema import RoundRecord
from fedsel_app.seeds import Purpose, stream
from strategies.method import SelectionMethod, most_rounds
from strategies.opened import Dispatch, OpenRound
from strategies.roster import NOBODY, Selection
from strategies.round import method_checks as checks
from strategies.round.federation import Answer, Federation, Until
from strategies.round.replies.deadline import over_selected_count
from strategies.round.replies.training import Replies
from strategies.round_record import NOBODY_CONNECTED, record_seconds, record_selection
from strategies.run import Run
from strategies.worker_sums import with_total, with_weights

LOGGER = logging.getLogger("fedsel")


def run_rounds(
    strategy: SelectionMethod[Any],
    federation: Federation,
    on_round: Callable[[RoundRecord], None] = lambda record: None,
) -> None:
    """Run the remaining rounds of a run with the clients of `federation`; `on_round` gets the record of each."""
    run: Run = strategy.run
    for number in range(run.completed + 1, most_rounds(strategy) + 1):
        if not run.ended and (record := run_round(strategy, federation, number)) is not None:
            on_round(record)


def run_round(strategy: SelectionMethod[Any], federation: Federation, number: int) -> RoundRecord | None:
    """Run round `number` and return its record; None if the run ends before this round."""
    run: Run = strategy.run
    opened = run.open(strategy, federation, number)
    if opened is None:
        return None
    dispatch = configure(run, opened)
    if run.under_way is not None:
        run.under_way.take_turn(opened, dispatch, partial(learn, run))
    elif dispatch is not None:
        aggregate(run, dispatch, opened.ask(dispatch))
    return run.close(opened)


def configure(run: Run, opened: OpenRound) -> Dispatch | None:
    """First half: the size of the cohort, its selection and its instructions. None if no client is to train.

    If the server does not wait for its cohort, the clients that are under way belong to it.
    """
    count = run.policy.count(opened)
    if run.under_way is not None and run.under_way.clients:
        count = max(min(count - len(run.under_way.clients), opened.roster.ids.size), 0)
        if not count:
            opened.roster.forget_probe()
            return None
    selection = select(opened, count)
    if not selection.clients.size:
        return None
    dispatch = instruct(selection, opened)
    if run.under_way is None and isinstance(links := opened.context.links, SimulatedLinks) and links.presence:
        dispatch = dispatch.losing(links.leaving(dispatch.work))
    if opened.clients.federation.simulated:
        dispatch = with_weights(dispatch, run.policy)
    if opened.context.privacy.masked:
        from strategies.masked_rounds import begin

        return begin(dispatch)
    return dispatch


def aggregate(run: Run, dispatch: Dispatch, answers: Mapping[int, Answer]) -> None:
    """Second half: check the replies, aggregate, step the server, calibrate BatchNorm, update the method, record."""
    opened = dispatch.opened
    sent_bytes, begun_s = opened.sent_to_train.nbytes, opened.begun_s
    replies = run.reader.read(answers, dispatch.instructions, dispatch.wanted, sent_bytes, begun_s)
    if any(reply.sums is not None for reply in replies.decoded):
        replies = with_total(dispatch, answers, replies)
    if dispatch.statement is not None:
        from strategies.masked_rounds import unmasked

        replies = unmasked(dispatch, replies)
    run.policy.learn(opened, replies)
    learn(run, opened, dispatch.selection, replies)
    record_seconds(opened, replies)


def learn(run: Run, opened: OpenRound, selection: Selection, replies: Replies) -> None:
    """Step the server, calibrate BatchNorm, update the method, record."""
    run.learn(opened, selection, replies, run.server.step(run.model.parameters, selection, replies))


def select(opened: OpenRound, count: int) -> Selection:
    """The cohort of a round that needs `count` replies, or fewer if fewer clients are available.

    The method's candidates are probed, unless the policy has probed all clients. A method sees only the losses of its
    own candidates. With over-selection the cohort is larger than `count`.
    """
    method, roster, context, number = opened.method, opened.roster, opened.context, opened.info.number
    count = min(count, roster.ids.size)
    if opened.probed and count == roster.ids.size:
        candidates = roster.ids
    else:
        rng = stream(context.run.seed, Purpose.CANDIDATES, number)
        candidates = checks.candidates(method, roster, opened.info, count, rng)
    probe = opened.probe(candidates)
    probe.write(roster, candidates)
    count = min(count, roster.ids.size)
    opened.record.cohort, opened.record.failures = count, probe.failures
    if not count:
        why = "every client failed its loss probe" if probe.failures else NOBODY_CONNECTED
        LOGGER.warning("Round %d: %s; the model does not change.", number, why)
        return Selection(NOBODY)
    most = over_selected_count(count, context.replies.over_selection, roster.ids.size)
    return checks.select(method, roster, opened.info, most, stream(context.run.seed, Purpose.SELECT, number))


def instruct(selection: Selection, opened: OpenRound) -> Dispatch:
    """The instructions of a cohort, and the end of the wait for its replies."""
    context, count = opened.context, opened.record.cohort
    changing = opened.model.buffers.size > context.variances.size
    wanted_buffers = changing or opened.statistics or context.calibration.of_training
    instructions, opened.record.kept_fraction = opened.instructions.instruct(
        selection,
        opened.info,
        statistics=wanted_buffers and opened.model.buffers.size > 0,
        local_epochs=opened.local_epochs,
    )
    record_selection(opened, selection, instructions)
    over_selected = over_selected_count(count, context.replies.over_selection, opened.roster.ids.size) > count
    wanted = min(count, selection.clients.size) if over_selected else selection.clients.size
    until = Until(wanted, context.replies.round_deadline_s) if context.links.measured else Until()
    return Dispatch(opened, selection, instructions, until, wanted)
