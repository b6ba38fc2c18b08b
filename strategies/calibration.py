"""BatchNorm statistics of the global model, recomputed by clients (HeteRo-Select, Alg. 1, line 13)."""

import logging

import numpy as np
from flwr.common import Scalar
from numpy.typing import NDArray

from fedsel_app.wire import WireError
from strategies import exchange
from strategies.roster import Ints
from strategies.server_optimizer import ServerConfig

LOGGER = logging.getLogger("fedsel")


def calibrated(
    clients: exchange.Clients,
    trained: Ints,
    parameters: NDArray[np.float32],
    buffers: NDArray[np.float32],
    server_round: int,
    config: ServerConfig,
) -> tuple[NDArray[np.float32], int]:
    """The new model's statistics, float32 (B,), averaged by examples, and the bytes that this took, both ways.

    The first `calibration-clients` of the `trained` run `calibration-batches` mini-batches in train mode. A client
    that fails is left out; if all do, `buffers` stay as they are. A model without statistics costs nothing.
    """
    if not buffers.size:
        return buffers, 0
    chosen = trained[: config.calibration_clients or trained.size]
    model = exchange.pack(parameters, buffers)
    task: dict[str, Scalar] = {"task": "calibrate", "round": server_round, "batches": config.calibration_batches}
    total, examples = np.zeros(buffers.size), 0
    for client, answer in clients.fit(chosen.tolist(), model, task).items():
        try:
            if isinstance(answer, Exception):
                raise WireError(str(answer))
            values = exchange.unpack_array(answer.parameters, np.float32, buffers.size)
            if values.shape != buffers.shape or not np.isfinite(values).all():
                raise WireError(f"expected {buffers.size} finite statistics, got {values.size}")
            if answer.num_examples < 1:
                raise WireError(f"statistics of {answer.num_examples} examples")
        except WireError as error:
            LOGGER.warning("Round %d: client %d did not calibrate: %s", server_round, client, error)
            continue
        total += answer.num_examples * values.astype(np.float64)
        examples += answer.num_examples
    sent = chosen.size * (exchange.model_bytes(model) + buffers.nbytes)
    return ((total / examples).astype(np.float32) if examples else buffers), int(sent)
