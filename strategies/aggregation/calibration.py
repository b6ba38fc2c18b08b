"""BatchNorm calibration: clients recompute the global model's statistics (HeteRo-Select, Alg. 1, line 13)."""

import logging

import numpy as np
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
) -> tuple[NDArray[np.float32], int]:
    """The new model's statistics, float32 (B,), averaged by examples, and the bytes that this took, both ways.

    The first `calibration-clients` of the `trained` run `calibration-batches` mini-batches in train mode. A client
    that fails is left out; if all do, `buffers` stay as they are. A model without statistics costs nothing.
    `variances` (B,) says which of them cannot be negative. Where `aggregation` is not the mean, each statistic is the
    clients' median.
    """
    if not buffers.size:
        return buffers, 0
    config = settings.calibration
    chosen = trained[: config.calibration_clients or trained.size]
    model = connections.pack(parameters, buffers)
    instruction = CalibrateInstruction(server_round, config.calibration_batches)
    returned: list[Floats] = []
    examples: list[int] = []
    for client, reply in clients.calibrate(chosen.tolist(), model, instruction).items():
        try:
            if isinstance(reply, Exception):
                raise WireError(str(reply))
            values = validation.unpack_array(reply.parameters, np.float32, buffers.size).astype(np.float64)
            if values.shape != buffers.shape or not (np.abs(values) <= LARGEST).all():
                raise WireError(f"expected {buffers.size} finite statistics, got {values.size}")
            if (values[variances] < 0).any():
                raise WireError("a variance is negative")
            answer = CalibrateAnswer.from_fit(reply.num_examples)
        except WireError as error:
            LOGGER.warning("Round %d: client %d did not calibrate: %s", server_round, client, error)
            continue
        returned.append(values)
        examples.append(answer.examples)
    sent = chosen.size * (connections.model_bytes(model) + buffers.nbytes)
    if not returned:
        return buffers, int(sent)
    if settings.aggregation.aggregation == "mean":
        total = np.zeros(buffers.size)
        for number, values in zip(examples, returned, strict=True):
            total += number * values
        return (total / sum(examples)).astype(np.float32), int(sent)
    return np.median(returned, axis=0).astype(np.float32), int(sent)
