"""Sums of workers: a simulated worker adds its clients' updates, and sends one exact sum and each client's numbers.

This takes a round in which nothing needs the single updates and every usable reply is aggregated. The server tells each
client its weight beforehand. It depends on no other client, because only the total is divided by the sum of the weights
(`strategies.aggregation.server_state.ServerState.weights`). The bits are those of updates that are sent one by one.

The server checks the same numbers as always. If it refuses a client whose update is in a sum, this client trains once
more, which gives the same update, and the server subtracts it.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedsel_app.exact_sums import MOST
from fedsel_app.messages.scalars import Report
from fedsel_app.records.files import RunFailed
from fedsel_app.wire.codec import WireError
from strategies.method import SelectionMethod
from strategies.opened import Dispatch, OpenRound
from strategies.participation import Participation
from strategies.roster import Floats
from strategies.round.federation import Answer, Reply
from strategies.round.replies.training import Replies

LARGEST_WEIGHT = 1e200
"""With this weight, no entry of float32 is too large for an exact sum."""


def with_weights(dispatch: Dispatch, policy: Participation) -> Dispatch:
    """The dispatch whose instructions have the clients' weights, if simulated workers may add their updates."""
    opened, selection = dispatch.opened, dispatch.selection
    if needs_single_updates(opened, policy):
        return dispatch
    training, clients = opened.context.training, selection.clients
    steps = [opened.reader.steps(*asked)[0] for asked in dispatch.instructions.items()]
    effective: Floats = np.array([training.effective_steps(number) for number in steps])
    reports = {str(Report.EFFECTIVE_STEPS): effective}
    weights = opened.server.weights(selection, clients, opened.roster.examples[clients], reports)
    own = weights.own if opened.server.common is None else opened.server.common.in_updates(weights).own
    if clients.size > MOST or not ((own > 0.0) & (own <= LARGEST_WEIGHT)).all():
        return dispatch
    instructions = {
        client: replace(instruction, weight=weight)
        for (client, instruction), weight in zip(dispatch.instructions.items(), own.tolist(), strict=True)
    }
    return replace(dispatch, instructions=instructions)


def needs_single_updates(opened: OpenRound, policy: Participation) -> bool:
    """True if something reads the single updates of this round, or may leave out a client that has sent a usable one.

    Clients of a user's own app always send their updates.
    """
    context, method, replies = opened.context, type(opened.method), opened.context.replies
    needs = method.needs(opened.method.config)
    learns = needs.round_updates and method.update is not SelectionMethod.update
    return bool(
        (needs.updates or learns or policy.needs_single_updates)
        or (context.aggregation.traits.needs_single_updates or context.compression.ef21 or context.privacy.dp_clip_norm)
        or (context.waiting.waiting != "synchronous" or context.links.measured or context.links.presence is not None)
        or (replies.over_selection or replies.round_deadline_s or replies.client_failure_rate)
        or context.losses_optional
        or context.attack.traits.lies
    )


def with_total(dispatch: Dispatch, answers: Mapping[int, Answer], replies: Replies) -> Replies:
    """The replies with the exact sums over their clients.

    Raises RunFailed if a client was left out whose update is in a worker's sum, and it does not send this update.
    """
    opened, instructions = dispatch.opened, dispatch.instructions
    server = opened.server
    parts = {id(answer.sums): answer.sums for answer in answers.values() if isinstance(answer, Reply) and answer.sums}
    total, *others = parts.values()
    for part in others:
        total.merge(part)
    for client, decoded in zip(replies.clients.tolist(), replies.decoded, strict=True):
        if decoded.sums is None:
            total.add(server.solver.terms(decoded.payloads, instructions[client].weight))
    accepted = set(replies.clients.tolist())
    inside = {client for client, answer in answers.items() if isinstance(answer, Reply) and answer.sums}
    if left_out := sorted(inside - accepted):
        asked = {client: replace(instructions[client], weight=0.0) for client in left_out}
        for client, answer in opened.clients.ask(asked, opened.sent_to_train).items():
            try:
                if not isinstance(answer, Reply):
                    raise WireError(str(answer))
                vectors = [update for update, _ in opened.reader.payloads(client, asked[client], answer.tensors)]
                total.subtract(server.solver.terms(vectors, instructions[client].weight))
            except WireError as error:
                raise RunFailed(
                    f"Resume the run. Client {client} was left out of round {opened.info.number} after a worker had "
                    f"added its update, and its training could not be repeated: {error}"
                ) from error
    return replace(replies, total=total)
