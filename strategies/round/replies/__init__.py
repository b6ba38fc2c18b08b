"""Replies: the one place that judges what clients say, before anything else uses it.

`enrolment` judges who they are and how many examples they have, `values` the numbers and arrays that they send,
`deadline` whether they reply in time, and `training` their whole replies after training.
"""

import logging
from collections.abc import Mapping

from fedsel_app.messages.reported_values import one_line
from strategies.round.federation import Answer, Reply

LOGGER = logging.getLogger("fedsel")


def replies_among(answers: Mapping[int, Answer], server_round: int, failed: str) -> dict[int, Reply]:
    """The answers that are replies. Each failure is logged: the client, `failed` (what failed), and the reason."""
    for client, answer in answers.items():
        if not isinstance(answer, Reply):
            LOGGER.warning("Round %d: client %d %s: %s", server_round, client, failed, one_line(answer))
    return {client: answer for client, answer in answers.items() if isinstance(answer, Reply)}
