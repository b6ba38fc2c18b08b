"""What clients send, checked before it is used: arrays, updates, losses and counts. Nothing here trusts a client."""

from collections.abc import Iterable
from io import BytesIO
from typing import Any

import numpy as np
from flwr.common import EvaluateRes, FitRes, Parameters, Scalar
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.wire.codec import Update
from fedsel_app.wire.codec import WireError as WireError
from fedsel_app.wire.codec import decode as wire_decode

MOST_BYTES_A_PARAMETER = 8
MOST_EXAMPLES = 10**9
"""What a client may say that it has, tested or computed: examples, local steps."""
LARGEST = float(np.sqrt(np.finfo(np.float32).max))
"""The largest number taken from a client, and the largest norm of an update: its square still is a float32."""


def unpack_array(parameters: Parameters, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """The one array of a client's reply, of `dtype` and at most `most` entries. Raises WireError if it is not that."""
    if len(parameters.tensors) != 1:
        raise WireError(f"expected one array, got {len(parameters.tensors)}")
    return _unpack(parameters.tensors[0], dtype, most)


def _unpack(tensor: bytes, dtype: type[np.generic], most: int) -> NDArray[np.generic]:
    """An array as Flower sends it. Its header is not parsed, but compared with that of an array of this length."""
    kind = np.dtype(dtype)
    head = len(array_header(0, kind))
    count, rest = divmod(len(tensor) - head, kind.itemsize)
    if rest or not 0 <= count <= most or tensor[:head] != array_header(count, kind):
        raise WireError(f"expected at most {most} {kind} as NumPy writes them, got {len(tensor)} bytes that are not")
    return np.frombuffer(tensor, kind, count, head) if count else np.zeros(0, kind)


def array_header(count: int, kind: np.dtype[Any]) -> bytes:
    """NumPy's header of an array of one dimension; it leaves room for any count, so its length is always the same."""
    stream = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(stream, fields)
    return stream.getvalue()


def validated_loss(answer: EvaluateRes | Exception) -> float:
    """The loss in a client's answer. Raises WireError unless it is a number from 0 to `LARGEST`, of some examples."""
    if isinstance(answer, Exception):
        raise WireError(str(answer))
    loss, examples = answer.loss, answer.num_examples
    if not 0.0 <= loss <= LARGEST:
        raise WireError(f"a loss of {loss}; it must be a number from 0 to {LARGEST:.3g}")
    if not 1 <= examples <= MOST_EXAMPLES:
        raise WireError(f"a loss of {examples} examples; they must be 1 to {MOST_EXAMPLES}")
    return loss


def decode(
    reply: FitRes,
    client: int,
    server_round: int,
    size: int,
    metrics: Iterable[str],
    *,
    seed: int | None = None,
    payloads: int = 1,
) -> tuple[Update, int]:
    """The update in a client's reply, the first of its `payloads`, and its bytes on the wire; `seed` is the run's.

    Raises
    ------
    WireError
        If it is not a sound update of `size` parameters, of this client for this round, with finite `metrics`.
    """
    tensors = reply.parameters.tensors
    if len(tensors) != payloads:
        raise WireError(f"expected {payloads} payload{'s' if payloads > 1 else ''}, got {len(tensors)}")
    for name in metrics:
        number = reply.metrics.get(name)
        if not isinstance(number, float) or not abs(number) <= LARGEST:
            raise WireError(f"the update came without the finite number '{name}' (at most {LARGEST:.3g})")
        if name == "work-steps" and not 0.0 <= number <= MOST_EXAMPLES:
            raise WireError(f"the update took {number} local steps; 0 to {MOST_EXAMPLES} are possible")
    return decode_payload(tensors[0], client, server_round, size, seed)


def decode_payload(
    tensor: bytes, client: int, server_round: int, size: int, seed: int | None = None
) -> tuple[Update, int]:
    """One payload of a reply and its bytes on the wire; raises WireError as `decode` does."""
    payload = _unpack(tensor, np.uint8, MOST_BYTES_A_PARAMETER * size + 4096).tobytes()
    packet = wire_decode(payload, size=size, seed=seed)
    if (packet.client, packet.server_round) != (client, server_round):
        raise WireError(
            f"an update of client {packet.client} for round {packet.server_round}, "
            f"but client {client} was asked for round {server_round}"
        )
    if packet.update.norm() > LARGEST:
        raise WireError(f"an update of norm {packet.update.norm():.3g}; no training goes further than {LARGEST:.3g}")
    return packet.update, len(payload)


def decode_counts(sent: Scalar, client: int, classes: int) -> NDArray[np.int64]:
    """Examples per class, int64 (classes,), from their little-endian bytes. Raises ConfigError if they are not."""
    if not isinstance(sent, bytes) or len(sent) != 8 * classes:
        raise ConfigError(f"Client {client} did not send the examples of each of {classes} classes.")
    counts = np.frombuffer(sent, "<i8").astype(np.int64)
    if counts.min(initial=0) < 0 or counts.max(initial=0) > MOST_EXAMPLES:
        raise ConfigError(f"Client {client} sent numbers of examples of each class that are not 0 to {MOST_EXAMPLES}.")
    return counts
