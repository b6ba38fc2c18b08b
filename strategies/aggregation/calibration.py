"""BatchNorm statistics of an aggregated model: clients recompute them, or those of local training are averaged.

Calibration is from HeteRo-Select (Alg. 1, line 13). The average by examples equals plain averaging of whole models;
ISP's candidates always use it.
"""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.messages.reported_values import one_line
from fedsel_app.wire.codec import WireError
from strategies.roster import Floats, Ints
from strategies.round import validation
from strategies.round.clients import ConnectedClients
from strategies.round.federation import Reply, SentModel, sent_model
from strategies.round.replies import Replies
from strategies.run_context import RunContext

LOGGER = logging.getLogger("fedsel")


def calibrated(
    clients: ConnectedClients,
    trained: Ints,
    parameters: NDArray[np.float32],
    buffers: NDArray[np.float32],
    server_round: int,
    context: RunContext,
    examples: Ints,
) -> tuple[NDArray[np.float32], int]:
    """The new model's statistics, float32 (B,), and the bytes that this took, in both directions.

    The first `calibration-clients` of the `trained` clients run mini-batches in train mode. Usually each runs
    `calibration-batches`, and the statistics are averaged by examples; if `aggregation` is not the mean, each statistic
    is the clients' median. With `calibration-form` = sequential, one client after the other continues the same
    statistics: each runs all mini-batches of its `examples`, int64 (K,), until there are `calibration-batches` in
    total.

    A client that fails is left out; if all fail, `buffers` do not change. A model without statistics costs nothing.
    """
    if not buffers.size:
        return buffers, 0
    config, variances = context.calibration, context.buffers > 0.0
    chosen = trained[: config.calibration_clients or trained.size]
    if config.calibration_form == "sequential":
        asked, left = 0, config.calibration_batches
        for client in chosen.tolist():
            batches = min(left, -(-int(examples[client]) // context.training.batch_size))
            if batches:
                asked, left = asked + 1, left - batches
                model, instruction = sent_model(parameters, buffers), CalibrateInstruction(server_round, batches)
                for _, values in _statistics(clients, [client], model, instruction, variances):
                    buffers = values.astype(np.float32)
        return buffers, asked * (sent_model(parameters, buffers).nbytes + buffers.nbytes)
    model = sent_model(parameters, buffers)
    instruction = CalibrateInstruction(server_round, config.calibration_batches)
    returned = list(_statistics(clients, chosen.tolist(), model, instruction, variances))
    sent = int(chosen.size * (model.nbytes + buffers.nbytes))
    if not returned:
        return buffers, sent
    returning, statistics = zip(*returned, strict=True)
    numbers = examples[list(returning)].tolist()
    return average_statistics(statistics, numbers, robust=context.aggregation.aggregation != "mean"), sent


def average_statistics(
    statistics: Sequence[Floats], examples: Sequence[int], *, robust: bool = False
) -> NDArray[np.float32]:
    """Average of the statistics of one or more clients by `examples`, float32 (B,); with `robust`, the median."""
    if robust:
        return np.median(statistics, axis=0).astype(np.float32)
    total = np.zeros(statistics[0].size)
    for values, number in zip(statistics, examples, strict=True):
        total += number * values
    return (total / sum(examples)).astype(np.float32)


def next_statistics(
    clients: ConnectedClients,
    replies: Replies,
    parameters: NDArray[np.float32],
    buffers: NDArray[np.float32],
    server_round: int,
    context: RunContext,
    examples: Ints,
) -> tuple[NDArray[np.float32], int]:
    """The new model's statistics by `calibration-form`, float32 (B,), and the bytes that they took.

    The bytes include statistics in the `replies`, 4 bytes each. `examples` is int64 (K,), of all clients.
    """
    sent_bytes = buffers.nbytes * len(replies.statistics)
    if not context.calibration.of_training:
        trained = replies.clients
        buffers, calibration_bytes = calibrated(clients, trained, parameters, buffers, server_round, context, examples)
        return buffers, calibration_bytes + sent_bytes
    if replies.statistics:
        robust = context.aggregation.aggregation != "mean"
        buffers = average_statistics(replies.statistics, examples[replies.clients].tolist(), robust=robust)
    return buffers, sent_bytes


def _statistics(
    clients: ConnectedClients,
    chosen: list[int],
    model: SentModel,
    instruction: CalibrateInstruction,
    variances: NDArray[np.bool_],
) -> Iterator[tuple[int, Floats]]:
    """Each client with a valid answer, and its statistics, float64 (B,). The others are logged.

    `variances` (B,) marks the statistics that cannot be negative.
    """
    for client, reply in clients.ask(dict.fromkeys(chosen, instruction), model).items():
        try:
            if not isinstance(reply, Reply):
                raise WireError(str(reply))
            values = validation.unpack_statistics(reply.tensors, variances)
        except WireError as error:
            reason = one_line(error)
            LOGGER.warning("Round %d: client %d did not calibrate: %s", instruction.server_round, client, reason)
            continue
        yield client, values
