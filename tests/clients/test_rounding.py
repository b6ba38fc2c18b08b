"""Values of few bits, under every compressor, with error feedback and without."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.compressors import rounded
from clients.error_feedback import as_sent, restore_untaken
from fedsel_app.config import CompressionConfig
from fedsel_app.wire.codec import decode, encode
from strategies.testing.fakes import dense
from tests.support.uploads import PLAIN, sent_by, spec

TOP = {16: 1, 8: 127, 4: 7}


@given(st.integers(1, 700), st.sampled_from([16, 8, 4]), st.integers(-44, 36), st.integers(0, 40), st.integers(0, 9999))
def test_rounding_to_the_nearest_level_contracts(count, bits, exponent, spread, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=count) * 10.0 ** (exponent - rng.uniform(0, spread, count))
    values = np.where(rng.random(count) < 0.1, 0, values).astype(np.float32)
    update = rounded(dense(values), bits, None)
    error = np.abs(update.values.astype(np.float64) - values)
    assert (error <= np.abs(values.astype(np.float64)) * (1 + 1e-6)).all()
    for start in range(0, values.size, 256):
        block, off = np.abs(values[start : start + 256]), error[start : start + 256]
        largest = float(block.max())
        assert off[block.argmax()] == 0
        nearest = np.maximum(block * 2.0**-11, largest * 2.0**-25) if bits == 16 else largest / TOP[bits] / 2
        assert (off <= nearest * (1 + 1e-4) + 1e-44).all()
    assert decode(encode(update, client=0, server_round=0), size=values.size).update == update


CHOICES = list(itertools.product(("top-k", "rand-k", "none"), (16, 8, 4)))


@pytest.mark.parametrize(("compressor", "bits"), CHOICES)
def test_the_residual_is_what_the_server_did_not_decode(compressor, bits):
    delta = np.random.default_rng(2).normal(size=400).astype(np.float32)
    choice = CompressionConfig(compressor=compressor, value_bits=bits, **PLAIN)
    update, state = sent_by(choice, delta)
    payload = encode(update, client=2, server_round=1, seeded=compressor == "rand-k")
    received = decode(payload, size=400, seed=5).update
    assert received == update
    assert state["residual"].tobytes() == (delta - received.dense()).tobytes()
    assert np.any(state["residual"][received.dense() != 0])
    # Lost on its way, nothing of the update is forgotten.
    restored = restore_untaken({}, {**state, **as_sent(payload, 400, 1.0)}, 1.0, seed=5)["residual"]
    np.testing.assert_allclose(restored, delta, rtol=0, atol=1e-6)
    plain, _ = sent_by(CompressionConfig(compressor=compressor, **PLAIN), delta)
    assert (received.indices is None) == (plain.indices is None)
    if plain.indices is not None:
        assert received.indices.tolist() == plain.indices.tolist()


@pytest.mark.parametrize("scheme", ["ef14", "ef21"])
@pytest.mark.parametrize(
    ("compressor", "bits"), [("top-k", 32), ("rand-k", 32), ("qsgd", 32), ("top-k", 4), ("rand-k", 4), ("none", 4)]
)
def test_with_feedback_the_mean_of_what_is_sent_nears_a_constant_update(compressor, bits, scheme):
    delta = np.random.default_rng(6).normal(size=30).astype(np.float32)
    choice = CompressionConfig(compressor=compressor, error_feedback_scheme=scheme, value_bits=bits, **PLAIN)
    state, total = {}, np.zeros(30)
    for t in range(1, 201):
        update, state = sent_by(choice, delta, state, spec(0.2, estimated=choice.ef21 and t > 1, server_round=t))
        total += update.dense()
    found = state["estimate"] if scheme == "ef21" else total / 200
    assert np.linalg.norm(found - delta) < 0.1 * np.linalg.norm(delta)
    if compressor == "none":
        assert np.linalg.norm(found - delta) < 1e-3 * np.linalg.norm(delta)


@pytest.mark.parametrize("compressor", ["top-k", "rand-k", "none"])
def test_without_feedback_the_rounding_is_drawn_from_the_seed_and_nothing_is_kept(compressor):
    delta = np.random.default_rng(3).normal(size=300).astype(np.float32)
    choice = CompressionConfig(compressor=compressor, value_bits=4, error_feedback=False, **PLAIN)
    update, state = sent_by(choice, delta)
    assert state == {}
    assert sent_by(choice, delta)[0] == update
    again = [sent_by(choice, delta, now=spec(0.2, server_round=t))[0].dense() for t in range(1, 400)]
    if compressor == "none":
        assert np.abs(np.mean(again, axis=0) - delta).max() < 0.1
