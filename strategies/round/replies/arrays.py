"""Validation: checks the arrays that clients send before they are used. `messages` checks the scalars."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.answers import LARGEST
from fedsel_app.messages.reported_values import one_line
from fedsel_app.wire.codec import Update, WireError
from fedsel_app.wire.codec import decode as wire_decode
from fedsel_app.wire.npy import read_array
from strategies.round.federation import Answer, Reply

LOGGER = logging.getLogger("fedsel")
MOST_BYTES_A_PARAMETER = 8


def unpack_array(tensor: bytes, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """Decode an array (n,) of `dtype` with at most `most` entries, as a view. Raises WireError for any other."""
    array: NDArray[np.generic] = read_array(tensor)
    if array.dtype != dtype or array.ndim != 1 or array.size > most:
        raise WireError(f"expected at most {most} {np.dtype(dtype)} in NumPy's format, got {array.dtype} {array.shape}")
    return array


def unpack_statistics(tensors: Sequence[bytes], variances: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Decode the BatchNorm statistics of a reply, float64 (B,); those in `variances`, (B,), cannot be negative.

    Raises
    ------
    WireError
        If they are not B finite numbers, or a variance is negative.
    """
    if len(tensors) != 1:
        raise WireError(f"it sent {len(tensors)} arrays instead of one: server and client must run the same app")
    values = unpack_array(tensors[0], np.float32, variances.size).astype(np.float64)
    if values.shape != variances.shape or not (np.abs(values) <= LARGEST).all():
        raise WireError(f"its BatchNorm statistics must be {variances.size} finite numbers, and it sent {values.size}")
    if (values[variances] < 0).any():
        raise WireError("it sent a negative variance of BatchNorm")
    return values


def read_statistics(
    answers: Mapping[int, Answer], variances: NDArray[np.bool_], server_round: int
) -> dict[int, NDArray[np.float64]]:
    """The BatchNorm statistics of each client that calibrated, as `unpack_statistics` returns them.

    Failures are logged.
    """
    found = {}
    for client, reply in answers.items():
        try:
            if not isinstance(reply, Reply):
                raise WireError(str(reply))
            found[client] = unpack_statistics(reply.tensors, variances)
        except WireError as error:
            LOGGER.warning("Round %d: client %d did not calibrate: %s", server_round, client, one_line(error))
    return found


def decode_payload(
    tensor: bytes, client: int, server_round: int, size: int, seed: int | None = None
) -> tuple[Update, int]:
    """Decode one payload of a reply; return its update and its number of bytes.

    `seed` is the run's seed, for indices that are drawn from it.

    Raises
    ------
    WireError
        If it is not a valid update of `size` parameters from this client for this round.
    """
    payload = unpack_array(tensor, np.uint8, MOST_BYTES_A_PARAMETER * size + 4096).data
    packet = wire_decode(payload, size=size, seed=seed)
    if (packet.client, packet.server_round) != (client, server_round):
        raise WireError(
            f"it sent an update of client {packet.client} for round {packet.server_round}, "
            f"and client {client} was asked for round {server_round}"
        )
    update = packet.update
    if update.norm() > LARGEST:
        raise WireError(
            f"its update has norm {update.norm():.3g}, and the largest valid norm is {LARGEST:.3g}: "
            "lower 'lr' if training diverges"
        )
    return update, len(payload)
