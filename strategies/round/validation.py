"""Validation: checks the arrays that clients send before they are used. `messages` checks the scalars."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.messages.answers import LARGEST
from fedsel_app.wire.codec import Update, WireError
from fedsel_app.wire.codec import decode as wire_decode

MOST_BYTES_A_PARAMETER = 8


def unpack_array(tensor: bytes, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """Decode an array in Flower's format, with `dtype` and at most `most` entries. Raises WireError for any other.

    Its header is compared with the expected one and never parsed.
    """
    kind = np.dtype(dtype)
    head = len(array_header(0, kind))
    count, rest = divmod(len(tensor) - head, kind.itemsize)
    if rest or not 0 <= count <= most or tensor[:head] != array_header(count, kind):
        raise WireError(f"expected at most {most} {kind} in NumPy's format, got {len(tensor)} bytes in another")
    return np.frombuffer(tensor, kind, count, head) if count else np.zeros(0, kind)


def array_header(count: int, kind: np.dtype[Any]) -> bytes:
    """NumPy's header of a one-dimensional array. Its length is the same for every count."""
    stream = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def unpack_statistics(tensors: Sequence[bytes], variances: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Decode the BatchNorm statistics of a reply, float64 (B,); those in `variances`, (B,), cannot be negative.

    Raises
    ------
    WireError
        If they are not B finite numbers, or a variance is negative.
    """
    if len(tensors) != 1:
        raise WireError(f"expected one array, got {len(tensors)}")
    values = unpack_array(tensors[0], np.float32, variances.size).astype(np.float64)
    if values.shape != variances.shape or not (np.abs(values) <= LARGEST).all():
        raise WireError(f"expected {variances.size} finite statistics, got {values.size}")
    if (values[variances] < 0).any():
        raise WireError("a variance is negative")
    return values


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
            f"an update of client {packet.client} for round {packet.server_round}, "
            f"but client {client} was asked for round {server_round}"
        )
    update = packet.update
    if update.norm() > LARGEST:
        raise WireError(f"an update of norm {update.norm():.3g}; the largest valid norm is {LARGEST:.3g}")
    return update, len(payload)
