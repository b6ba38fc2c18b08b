"""Client tests: answers of clients that tested a model on their own test parts, bounded, and their mean loss."""

import math
from collections.abc import Mapping

import numpy as np

from fedsel_app.messages.answers import EvaluateAnswer
from fedsel_app.messages.reported_values import winsorised
from strategies.roster import Ints
from strategies.round.federation import Reply
from strategies.run_context import RunContext


def read_tests(replies: Mapping[int, Reply], context: RunContext) -> dict[int, EvaluateAnswer]:
    """The answers by ascending id, as far as they are believed.

    Examples count for `example-clip` times their median at most, losses for `loss-clip` times theirs, and then an
    unknown loss for as much.
    """
    found = [replies[client] for client in sorted(replies)]
    answers = [EvaluateAnswer.from_evaluation(reply.loss, reply.examples, reply.metrics) for reply in found]
    reported = np.array([answer.examples for answer in answers], np.float64)
    examples = winsorised(reported, context.claims.example_clip, reported[reported > 0.0])
    losses = np.array([answer.loss for answer in answers], np.float64)
    if context.claims.loss_clip:
        losses = winsorised(np.where(np.isnan(losses), np.inf, losses), context.claims.loss_clip, losses)
    return {
        client: EvaluateAnswer(loss, int(count), _possible(answer.accuracy, context.lowest_score))
        for client, answer, count, loss in zip(
            sorted(replies), answers, examples.tolist(), losses.tolist(), strict=True
        )
    }


def _possible(accuracy: float | None, lowest: float) -> float | None:
    return accuracy if accuracy is not None and accuracy >= lowest else None


def tested_loss(answers: Mapping[int, EvaluateAnswer]) -> tuple[float, Ints]:
    """Mean loss over all tested examples, and the clients that tested, ascending ids.

    The loss is inf where one is unknown, or nothing was tested. A client that reports no example, or more than
    a client can have, is left out.
    """
    tested = {client: answer for client, answer in answers.items() if answer.examples}
    examples = sum(answer.examples for answer in tested.values())
    loss = sum(answer.examples * answer.loss for answer in tested.values()) / examples if examples else math.inf
    return loss if math.isfinite(loss) else math.inf, np.array(list(tested), np.int64)
