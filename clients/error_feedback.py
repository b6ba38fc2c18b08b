"""Error feedback: a client compresses its update for the upload, and keeps the residual that it did not send.

Error feedback "ef14" (F. Seide et al., Interspeech 2014; S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with
Memory", NeurIPS 2018) sends C(v) of v = delta + e and keeps e = beta (v - C(v)). "ef21" (P. Richtarik, I. Sokolov, I.
Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback", NeurIPS 2021, arXiv
2106.05203) sends c = C(delta - g), and both sides add c to g, so that g follows delta. Both need a contractive
compressor. So with error feedback rand-k does not scale its entries up, and qsgd scales its values down. Values with
fewer than 32 bits are rounded to the nearest level, and the residual includes the rounding error. Without error
feedback they are rounded at random. Those of common-k are always rounded to the nearest multiple, and clipped.

If a reply did not arrive, nothing counts as sent: e = beta v. If the server took only the share a of a reply, the rest
returns to the residual: e = beta (v - a C(v)) (`restore_untaken`). "ef21" has no residual; its estimate does not
change.

Deviations: "ef21" estimates the local update, not a gradient. It starts at g = 0, and its first message is compressed
like any other. The server averages the g of the clients that replied, not of all clients.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clients.compressors import coordinate_scores, layer_shares, qsgd, rand_k, rounded, top_k
from clients.state import StateError
from fedsel_app.config import CompressionConfig
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update, decode
from fedsel_app.wire.entries import decode_entries
from fedsel_app.wire.indices import kept_count, seeded_indices

QSGD_BUCKET = 128
"""Number of entries that share one norm in the compressor qsgd."""
Vector = NDArray[np.float32]
State = Mapping[str, NDArray[Any]]
Curvature = Callable[[NDArray[np.float64]], Mapping[int, Vector]]
Compressed = tuple[Update, dict[str, NDArray[Any]]]
"""The update to send, and arrays that the client stores for its next update."""


class Upload(NamedTuple):
    """What a compressor may read beside the vector: the arguments of `upload`."""

    state: State
    layers: Sequence[LayerSlice]
    settings: CompressionConfig
    instruction: TrainInstruction
    curvature: Curvature | None
    seed: int
    client: int
    examples: int


def upload(
    delta: Vector,
    state: State,
    layers: Sequence[LayerSlice],
    compression: CompressionConfig,
    instruction: TrainInstruction,
    curvature: Curvature | None,
    *,
    seed: int,
    client: int,
    examples: int,
) -> Compressed:
    """Compress the local change `delta`, float32 (N,). Returns the update to send and the arrays to store.

    A change in float64 is sent whole, or compressed as float32.

    `state` has the arrays that were stored last. `curvature` takes the layers' shares of the last mask and returns the
    diagonal curvature by layer; None: top-k scores only by magnitude. `client` is the client's partition id, and
    `examples` the number of its training examples.

    Raises StateError if the server has an estimate of this client's update and the client does not.
    """
    if compression.lossless:
        return Update(delta.size, None, delta), {}
    estimated = compression.ef21 and instruction.estimated
    if estimated and "estimate" not in state:
        raise StateError(
            f"Client {client} has no estimate of its update, but the server has one. Keep the 'state-dir' of a"
            f" run until it ends."
        )
    vector = delta.astype(np.float32, copy=False)
    if estimated:
        vector = vector - state["estimate"]
    elif "residual" in state:
        vector = vector + state["residual"]
    compress = COMPRESSORS[compression.compressor]
    update, kept = compress(vector, Upload(state, layers, compression, instruction, curvature, seed, client, examples))
    if compression.value_bits < 32:
        noise = None if compression.error_feedback else stream(seed, Purpose.ROUNDING, instruction.server_round, client)
        update = rounded(update, compression.value_bits, noise)
    if estimated:
        kept["estimate"] = state["estimate"].copy()
        kept["estimate"][slice(None) if update.indices is None else update.indices] += update.values
    elif compression.ef21:
        kept["estimate"] = update.dense()
    elif compression.error_feedback and (update.indices is not None or update.quantised is not None):
        unsent = vector - update.dense() / np.float32(weight_sent(instruction, delta.size, examples))
        kept["residual"] = unsent.astype(np.float32) * np.float32(instruction.residual_decay)
    return update, kept


def weight_sent(instruction: TrainInstruction, size: int, examples: int) -> float:
    """By what a client with so many examples multiplies its update, float32 (size,), before it is sent."""
    if instruction.entries is None:
        return 1.0
    return decode_entries(instruction.entries, size, instruction.server_round).weight(examples)


def restore_untaken(state: State, unacknowledged: State, taken: float, seed: int) -> dict[str, NDArray[Any]]:
    """Restore the residual of a client whose last upload was not aggregated or only partly taken.

    `state` follows the last upload that was aggregated; the server took the share `taken` of it. `unacknowledged` is
    the state after a later upload that was not acknowledged, or empty; the server took nothing of that upload.
    Everything but the residual stays as it was in `state`.
    """
    last, share = (unacknowledged, 0.0) if "sent" in unacknowledged else (state, taken)
    if "sent" not in last or share == 1.0:
        return dict(state)
    packet = decode(last["sent"].tobytes(), size=int(last["size"]), seed=seed)
    untaken = packet.update.dense() * (last["decay"] * np.float32(1.0 - share))
    return {**state, "residual": last["residual"] + untaken if "residual" in last else untaken}


def as_sent(payload: bytes, size: int, decay: float) -> dict[str, NDArray[Any]]:
    """Arrays with which `restore_untaken` restores an upload: payload, model size, residual decay."""
    return {"sent": np.frombuffer(payload, np.uint8), "size": np.array(size), "decay": np.array(decay, np.float32)}


def _top_k(vector: Vector, given: Upload) -> Compressed:
    layers, settings = given.layers, given.settings
    count = kept_count(given.instruction.kept_fraction, vector.size, down=settings.as_coded)
    diagonal: Mapping[int, Vector] = {}
    if given.curvature is not None and count < vector.size:
        diagonal = given.curvature(given.state.get("shares", np.ones(len(layers))))
    update = top_k(vector, coordinate_scores(vector, diagonal, layers), count)
    if not settings.curvature_layers:
        return update, {}
    return update, {"shares": layer_shares(update.indices, layers, of_own=settings.as_coded)}


def _rand_k(vector: Vector, given: Upload) -> Compressed:
    settings, instruction = given.settings, given.instruction
    count = kept_count(instruction.kept_fraction, vector.size, down=settings.as_coded)
    indices = seeded_indices(given.seed, instruction.server_round, given.client, vector.size, count)
    return rand_k(vector, indices, unbiased=not settings.error_feedback), {}


def _common_k(vector: Vector, given: Upload) -> Compressed:
    instruction = given.instruction
    entries = decode_entries(instruction.entries or b"", vector.size, instruction.server_round)
    return entries.update(vector, given.examples), {}


def _qsgd(vector: Vector, given: Upload) -> Compressed:
    settings = given.settings
    rng = stream(given.seed, Purpose.COMPRESS, given.instruction.server_round, given.client)
    unbiased = not settings.error_feedback
    return qsgd(vector, settings.qsgd_levels, QSGD_BUCKET, rng, unbiased=unbiased), {}


def _whole(vector: Vector, given: Upload) -> Compressed:
    return Update(vector.size, None, vector), {}


COMPRESSORS: Mapping[str, Callable[[Vector, Upload], Compressed]] = {
    "top-k": _top_k,
    "rand-k": _rand_k,
    "common-k": _common_k,
    "qsgd": _qsgd,
    "none": _whole,
}
"""Compressor -> function from the vector to compress, float32 (N,), to the update."""
