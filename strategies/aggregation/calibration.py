"""Buffers of an aggregated model: clients recompute the BatchNorm statistics, or those of local training are averaged.

Calibration is from HeteRo-Select (Alg. 1, line 13). The average by examples equals plain averaging of whole models;
ISP's candidates always use it. Buffers that are no statistics but change in training are always averaged.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsel_app.exact_sums import weighted_sum
from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.wire.codec import Update
from strategies.roster import Floats
from strategies.round.clients import ConnectedClients
from strategies.round.federation import sent_model
from strategies.round.replies.training import Replies
from strategies.round.replies.values import read_statistics
from strategies.run_context import Model, RunContext


def next_buffers(
    clients: ConnectedClients,
    replies: Replies,
    model: Model,
    server_round: int,
    context: RunContext,
) -> tuple[NDArray[np.float32], int]:
    """The buffers of the new `model`, float32 (B,), and the bytes that they took, in both directions. So far the model
    has the old buffers.

    The statistics are the first S of them. By `calibration-form`, either those of the `replies` are averaged, or the
    first `calibration-clients` of their clients run mini-batches in train mode. Usually each runs
    `calibration-batches`, and the statistics are averaged by the clients' examples; if `aggregation` is not the mean,
    each statistic is the clients' median. With `calibration-form` = sequential, one client after the other continues
    the same statistics: each runs all mini-batches of its examples, until there are `calibration-batches` in total. The
    other buffers are averages of those in the `replies`. The bytes include all buffers in the `replies`.

    A client that fails is left out. If all fail, the statistics do not change. A model without buffers costs nothing.
    """
    config, (parameters, buffers), count = context.calibration, model, context.variances.size
    robust, sent_bytes = context.aggregation.traits.robust, buffers.nbytes * len(replies.statistics)
    if replies.statistics:
        averages: NDArray[np.float32] = average_statistics(
            replies.statistics, replies.examples.tolist(), robust=robust
        ).astype(buffers.dtype)
        if config.of_training:
            return averages, sent_bytes
        buffers = np.concatenate([buffers[:count], averages[count:]])
    if not count or config.of_training:
        return buffers, sent_bytes
    examples = dict(zip(replies.clients.tolist(), replies.examples.tolist(), strict=True))
    ask = partial(_statistics, clients, parameters, server_round, context)
    client_bytes = parameters.nbytes + buffers.nbytes + buffers[:count].nbytes
    chosen = replies.clients[: config.calibration_clients or replies.clients.size].tolist()
    if config.calibration_form == "sequential":
        done = contributed = 0
        for client in chosen:
            passes = context.training.passes(examples[client], context.admission.least_examples)
            if batches := min(config.calibration_batches - done, passes):
                sent_bytes += client_bytes
                for values in ask(buffers, [client], batches, contributed).values():
                    buffers = np.concatenate([values.astype(np.float32), buffers[count:]])
                    contributed += batches
                done += batches
        return buffers, sent_bytes
    found = ask(buffers, chosen, config.calibration_batches)
    sent_bytes += len(chosen) * client_bytes
    if found:
        average = average_statistics(list(found.values()), [examples[client] for client in found], robust=robust)
        buffers = np.concatenate([average.astype(buffers.dtype), buffers[count:]])
    return buffers, sent_bytes


def average_statistics(statistics: Sequence[Floats], examples: Sequence[int], *, robust: bool = False) -> Floats:
    """Average of the statistics of one or more clients by `examples`, float64 (B,); with `robust`, the median."""
    if robust:
        return np.median(statistics, axis=0).astype(np.float64)
    return weighted_sum([Update(values.size, None, values) for values in statistics], examples) / math.fsum(examples)


def _statistics(
    clients: ConnectedClients,
    parameters: NDArray[np.float32],
    server_round: int,
    context: RunContext,
    buffers: NDArray[np.float32],
    chosen: list[int],
    batches: int,
    earlier_batches: int = 0,
) -> dict[int, Floats]:
    """Statistics of each `chosen` client, float64 (S,), after its `batches`."""
    instruction = dict.fromkeys(chosen, CalibrateInstruction(server_round, batches, earlier_batches))
    answers = clients.ask(instruction, sent_model(parameters, buffers))
    return read_statistics(answers, context.variances, server_round)
