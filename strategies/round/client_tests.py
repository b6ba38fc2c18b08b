"""Client tests: answers of clients that tested a model on their own test parts, bounded, and their mean loss."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedsel_app.messages import LocalTestAnswer, winsorised
from strategies.roster import Ints
from strategies.round.federation import Reply
from strategies.run_context import RunContext


def read_tests(replies: Mapping[int, Reply], context: RunContext) -> dict[int, LocalTestAnswer]:
    """The answers by ascending id, as far as they are believed.

    Examples count for `example-clip` times their median at most, losses for `loss-clip` times theirs, and then an
    unknown loss for as much.
    """
    answers = [
        LocalTestAnswer.from_evaluation(reply.loss, reply.examples, reply.metrics, context.lowest_score)
        for _, reply in sorted(replies.items())
    ]
    claimed = np.array([answer.examples if answer.credible else 0 for answer in answers], np.float64)
    examples = winsorised(claimed, context.claims.example_clip, claimed[claimed > 0.0])
    losses = np.array([answer.loss for answer in answers], np.float64)
    if context.claims.loss_clip:
        losses = winsorised(np.where(np.isnan(losses), np.inf, losses), context.claims.loss_clip, losses)
    return {
        client: replace(answer, examples=int(count), loss=loss)
        for client, answer, count, loss in zip(
            sorted(replies), answers, examples.tolist(), losses.tolist(), strict=True
        )
    }


def tested_loss(answers: Mapping[int, LocalTestAnswer]) -> tuple[float, Ints]:
    """Mean loss over all tested examples, and the clients that tested, ascending ids.

    The loss is inf where one is unknown, or nothing was tested. A client that claims to have tested no example, or more
    than a client can have, is left out.
    """
    tested = {client: answer for client, answer in answers.items() if answer.credible}
    examples = sum(answer.examples for answer in tested.values())
    loss = sum(answer.examples * answer.loss for answer in tested.values()) / examples if examples else math.inf
    return loss if math.isfinite(loss) else math.inf, np.array(list(tested), np.int64)
