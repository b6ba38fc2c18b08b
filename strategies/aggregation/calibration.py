"""BatchNorm calibration: clients recompute the global model's statistics (HeteRo-Select, Alg. 1, line 13)."""

import logging
from collections.abc import Iterator

import numpy as np
from flwr.common import Parameters
from numpy.typing import NDArray

from fedsel_app.config import SharedSettings
from fedsel_app.messages import LARGEST, CalibrateAnswer, CalibrateInstruction
from fedsel_app.wire.codec import WireError
from strategies.roster import Floats, Ints
from strategies.round import connections, validation

LOGGER = logging.getLogger("fedsel")


def calibrated(
    clients: connections.ConnectedClients,
    trained: Ints,
    parameters: NDArray[np.float32],
    buffers: NDArray[np.float32],
    server_round: int,
    settings: SharedSettings,
    variances: NDArray[np.bool_],
    examples: Ints,
) -> tuple[NDArray[np.float32], int]:
    """The new model's statistics, float32 (B,), and the bytes that this took, both ways.

    The first `calibration-clients` of the `trained` run mini-batches in train mode: `calibration-batches` each, and the
    statistics are averaged by examples (with another `aggregation` than the mean, each statistic is the clients'
    median); or, under `calibration-form` sequential, one client after the other on the same statistics, each as many
    mini-batches as its `examples`, int64 (K,), make, and `calibration-batches` in all. A client that fails is left out;
    if all do, `buffers` stay as they are. A model without statistics costs nothing. `variances` (B,) are the statistics
    that cannot be negative.
    """
    if not buffers.size:
        return buffers, 0
    config = settings.calibration
    chosen = trained[: config.calibration_clients or trained.size]
    if config.calibration_form == "sequential":
        asked, left = 0, config.calibration_batches
        for client in chosen.tolist():
            batches = min(left, -(-int(examples[client]) // settings.training.batch_size))
            if batches:
                asked, left = asked + 1, left - batches
                model, instruction = connections.pack(parameters, buffers), CalibrateInstruction(server_round, batches)
                for values, _ in _statistics(clients, [client], model, instruction, variances):
                    buffers = values.astype(np.float32)
        return buffers, asked * (connections.model_bytes(connections.pack(parameters, buffers)) + buffers.nbytes)
    model = connections.pack(parameters, buffers)
    instruction = CalibrateInstruction(server_round, config.calibration_batches)
    returned = list(_statistics(clients, chosen.tolist(), model, instruction, variances))
    sent = int(chosen.size * (connections.model_bytes(model) + buffers.nbytes))
    if not returned:
        return buffers, sent
    if settings.aggregation.aggregation == "mean":
        total = np.zeros(buffers.size)
        for values, number in returned:
            total += number * values
        return (total / sum(number for _, number in returned)).astype(np.float32), sent
    return np.median([values for values, _ in returned], axis=0).astype(np.float32), sent


def _statistics(
    clients: connections.ConnectedClients,
    chosen: list[int],
    model: Parameters,
    instruction: CalibrateInstruction,
    variances: NDArray[np.bool_],
) -> Iterator[tuple[Floats, int]]:
    """Statistics, float64 (B,), and examples of each client whose answer is sound; the others are logged."""
    for client, reply in clients.calibrate(chosen, model, instruction).items():
        try:
            if isinstance(reply, Exception):
                raise WireError(str(reply))
            values = validation.unpack_array(reply.parameters, np.float32, variances.size).astype(np.float64)
            if values.shape != variances.shape or not (np.abs(values) <= LARGEST).all():
                raise WireError(f"expected {variances.size} finite statistics, got {values.size}")
            if (values[variances] < 0).any():
                raise WireError("a variance is negative")
            answer = CalibrateAnswer.from_fit(reply.num_examples)
        except WireError as error:
            LOGGER.warning("Round %d: client %d did not calibrate: %s", instruction.server_round, client, error)
            continue
        yield values, answer.examples
