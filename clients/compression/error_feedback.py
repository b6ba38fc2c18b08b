"""What a client sends of its update, and what it keeps of the rest: compressors and error feedback.

Error feedback "ef14" (F. Seide et al., Interspeech 2014; S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with
Memory", NeurIPS 2018) sends C(v) of v = delta + e and keeps e = beta (v - C(v)). "ef21" (P. Richtarik, I. Sokolov,
I. Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback", NeurIPS 2021, arXiv
2106.05203) sends c = C(delta - g) and both sides move g by c, so that g follows delta. Both need a compressor that
contracts, so there rand-k does not scale its entries up, and qsgd scales its values down. Values of fewer than 32 bits
are rounded to the nearest with error feedback, which then holds the rounding too, and at random without it.

A reply that was lost on its way counts as if nothing had been sent: e = beta v (`restore_unacknowledged`).

Deviations: "ef21" estimates the local update, not a gradient, and starts at g = 0 with a first message that is
compressed as any other; the server takes the g of those who came back, not of everybody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.compression.compressors import coordinate_scores, kept_count, layer_shares, qsgd, rand_k, rounded, top_k
from clients.state import StateError
from fedsel_app.config import CompressionConfig
from fedsel_app.models.flat_model import LayerSlice
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update, decode
from fedsel_app.wire.indices import seeded_indices

Floats = NDArray[np.float32]
State = Mapping[str, NDArray[Any]]
Curvature = Callable[[NDArray[np.float64]], Mapping[int, Floats]]


@dataclass(frozen=True)
class UploadSpec:
    """What the server says of one upload, and whose it is."""

    kept_fraction: float
    residual_decay: float
    estimated: bool
    """Under ef21: whether the server has this client's estimate."""
    seed: int
    server_round: int
    client: int

    def stream(self, purpose: Purpose) -> np.random.Generator:
        """What this client draws from in this round."""
        return stream(self.seed, purpose, self.server_round, self.client)


def upload(
    delta: Floats,
    state: State,
    layers: Sequence[LayerSlice],
    choice: CompressionConfig,
    terms: UploadSpec,
    curvature: Curvature | None,
) -> tuple[Update, dict[str, NDArray[Any]]]:
    """The update to send for the local change `delta`, float32 (N,), and the arrays to remember.

    Parameters
    ----------
    state
        What was remembered last.
    curvature
        Diagonal curvature by layer, given the layers' shares of the last mask; None to score by magnitude alone.

    Raises
    ------
    StateError
        If the server has an estimate of this client's update and the client does not.
    """
    if choice.lossless:
        return Update(delta.size, None, delta), {}
    estimate = _estimate(state, terms) if choice.ef21 else None
    vector = delta
    if estimate is not None:
        vector = delta - estimate
    elif "residual" in state:
        vector = delta + state["residual"]
    if choice.compressor == "top-k":
        update, kept = _top_k(vector, state, layers, choice, terms.kept_fraction, curvature)
    elif choice.compressor == "none":
        update, kept = Update(vector.size, None, vector), {}
    else:
        update, kept = _random(vector, choice, terms), {}
    if choice.value_bits < 32:
        noise = None if choice.error_feedback else terms.stream(Purpose.ROUNDING)
        update = rounded(update, choice.value_bits, noise)
    if choice.ef21:
        kept["estimate"] = update.dense() if estimate is None else _moved(estimate, update)
    elif choice.error_feedback and (update.indices is not None or update.quantised is not None):
        kept["residual"] = (vector - update.dense()) * np.float32(terms.residual_decay)
    return update, kept


def restore_unacknowledged(state: State, lost: State, seed: int) -> dict[str, NDArray[Any]]:
    """What a client goes on from when the server took its `state`, and what it sent to reach `lost` never counted.

    Its residual e = beta v holds all that it had to send then; everything else is as it was in `state`.
    """
    if "sent" not in lost:
        return dict(state)
    sent = decode(lost["sent"].tobytes(), size=int(lost["size"]), seed=seed).update.dense() * lost["decay"]
    return {**state, "residual": lost["residual"] + sent if "residual" in lost else sent}


def as_sent(payload: bytes, size: int, decay: float) -> dict[str, NDArray[Any]]:
    """What `restore_unacknowledged` needs of an upload: its payload, the model's size, the round's residual decay."""
    return {"sent": np.frombuffer(payload, np.uint8), "size": np.array(size), "decay": np.array(decay, np.float32)}


def _top_k(
    vector: Floats,
    state: State,
    layers: Sequence[LayerSlice],
    choice: CompressionConfig,
    fraction: float,
    curvature: Curvature | None,
) -> tuple[Update, dict[str, NDArray[Any]]]:
    spans = [slice(0, vector.size)]
    if choice.top_k_scope == "layer":
        spans = [slice(layer.start, layer.stop) for layer in layers]
    counts = [kept_count(fraction, span.stop - span.start, choice.kept_rounding) for span in spans]
    diagonal: Mapping[int, Floats] = {}
    if curvature is not None and sum(counts) < vector.size:
        diagonal = curvature(state.get("shares", np.ones(len(layers))))
    scores = coordinate_scores(vector, diagonal, layers, choice.curvature_scale, choice.curvature_floor)
    update = top_k(vector, scores, spans, counts)
    if not choice.curvature_layers:
        return update, {}
    return update, {"shares": layer_shares(update.indices, layers, choice.layer_importance)}


def _random(vector: Floats, choice: CompressionConfig, terms: UploadSpec) -> Update:
    if choice.compressor == "rand-k":
        count = kept_count(terms.kept_fraction, vector.size, choice.kept_rounding)
        drawn = seeded_indices(terms.seed, terms.server_round, terms.client, vector.size, count)
        return rand_k(vector, drawn, unbiased=not choice.error_feedback)
    rng = terms.stream(Purpose.COMPRESS)
    return qsgd(vector, choice.qsgd_levels, choice.qsgd_bucket, rng, unbiased=not choice.error_feedback)


def _estimate(state: State, terms: UploadSpec) -> Floats | None:
    if not terms.estimated:
        return None
    if "estimate" not in state:
        raise StateError(
            f"Client {terms.client} has no estimate of its update, and the server has one. "
            "Keep the 'state-dir' of a run until it ends."
        )
    return state["estimate"]


def _moved(estimate: Floats, update: Update) -> Floats:
    moved = estimate.copy()
    moved[slice(None) if update.indices is None else update.indices] += update.values
    return moved
