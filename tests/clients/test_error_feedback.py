"""Compressors and error feedback on vectors by hand."""

import re
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clients import error_feedback
from clients.compressors import qsgd, rand_k
from clients.error_feedback import as_sent, restore_untaken
from clients.state import StateError
from fedsel_app.config import CompressionConfig
from fedsel_app.wire.codec import Update, decode, encode
from fedsel_app.wire.entries import NO_INDICES, RoundEntries, encode_entries
from fedsel_app.wire.indices import seeded_indices
from tests.support.documentation import PAGES
from tests.support.uploads import LAYERS, PLAIN, sent_by, spec, upload, vector


def sent_over(choice, deltas, **changed):
    """Updates sent in each round, dense, and the state at the end."""
    state, sent = {}, []
    for server_round, delta in enumerate(deltas, start=1):
        now = spec(server_round=server_round, estimated=choice.ef21 and server_round > 1, **changed)
        update, state = sent_by(choice, delta, state, now)
        sent.append(update.dense().tolist())
    return sent, state


GRADIENTS = [vector(3, -1, 0.5), vector(2, -1, 0.5), vector(2, -1, 0.5)]


@pytest.mark.parametrize(
    ("scheme", "expected", "memory"),
    [
        ("ef14", [[3, 0, 0], [2, 0, 0], [0, -3, 0]], {"residual": [2, 0, 1.5]}),
        ("ef21", [[3, 0, 0], [-1, 0, 0], [0, -1, 0]], {"estimate": [2, -1, 0]}),
    ],
)
def test_top_1_by_hand(scheme, expected, memory):
    sent, state = sent_over(CompressionConfig(error_feedback_scheme=scheme, **PLAIN), GRADIENTS)
    assert sent == expected
    assert {name: state[name].tolist() for name in memory} == memory


def test_the_compressor_of_the_page_by_hand(monkeypatch):
    [function] = re.findall(r"    (def .*?)\n\n?    ```", PAGES["docs/compressor.md"], re.DOTALL)
    exec(textwrap.dedent("    " + function), vars(error_feedback), names := {})
    monkeypatch.setitem(error_feedback.COMPRESSORS, "top-k", names["_cyclic_k"])
    assert sent_over(CompressionConfig(**PLAIN), GRADIENTS)[0] == [[0, -1, 0], [0, 0, 1], [7, 0, 0]]


def test_ef21_starts_anew_where_the_server_has_no_estimate():
    choice = CompressionConfig(error_feedback_scheme="ef21", **PLAIN)
    _, state = sent_by(choice, vector(3, -1, 0.5), {"estimate": vector(9, 9, 9)}, spec())
    assert state["estimate"].tolist() == [3, 0, 0]


def test_ef21_without_the_estimate_that_the_server_has_is_an_error():
    choice = CompressionConfig(error_feedback_scheme="ef21", **PLAIN)
    with pytest.raises(StateError, match=r"Client 2.*'state-dir'"):
        sent_by(choice, vector(3, -1), now=spec(estimated=True))


def test_what_the_server_did_not_take_comes_back_by_hand():
    """v = (4, 2), of which 4 was sent; with beta = 0.5 the residual is 0.5 (v - a C(v))."""
    payload = encode(Update(2, np.array([0], np.uint32), vector(4)), client=2, server_round=1)
    state = {"residual": vector(0, 1), "shares": np.ones(1), **as_sent(payload, 2, 0.5)}
    for taken, residual in ((1.0, [0, 1]), (0.25, [1.5, 1]), (0.0, [2, 1])):
        restored = restore_untaken(state, {}, taken, seed=5)
        assert restored["residual"].tolist() == residual
        assert restored["shares"] is state["shares"]
    # A later upload that was lost holds all that was left of this one.
    later = {"residual": vector(3, 0), **as_sent(payload, 2, 0.5)}
    assert restore_untaken(state, later, 0.25, seed=5)["residual"].tolist() == [5, 0]


def test_what_a_weighted_multiple_leaves_by_hand():
    """A quarter of (4, -2.5, 1) is (1, -1, 0) in whole numbers, which stand for (4, -4, 0)."""
    stated = encode_entries(RoundEntries(None, 8, 6, 1, full_weight=40), NO_INDICES, 3, 5)
    now = replace(spec(), entries=stated)
    update, state = sent_by(CompressionConfig(compressor="common-k", **PLAIN), vector(4, -2.5, 1), now=now)
    assert update.values.tolist() == [1, -1, 0]
    assert state["residual"].tolist() == [0, 1.5, 1]


def test_without_error_feedback_nothing_comes_back():
    estimate = {"estimate": vector(1, 2)}
    assert restore_untaken(estimate, {}, 0.0, seed=5) == estimate
    assert restore_untaken({}, {}, 0.0, seed=5) == {}


def test_curvature_scores_top_k_alone():
    asked = []

    def curvature(shares):
        asked.append(shares)
        return {}

    delta = np.arange(1, 11, dtype=np.float32)
    for compressor in ("top-k", "rand-k", "qsgd", "none"):
        _, state = upload(delta, {}, LAYERS, CompressionConfig(compressor=compressor), spec(0.5), curvature)
        assert ("shares" in state) == (compressor == "top-k")
    assert len(asked) == 1


@pytest.mark.parametrize("feedback", [False, True])
def test_rand_k_is_scaled_only_without_feedback(feedback):
    delta = np.arange(1, 11, dtype=np.float32)
    choice = CompressionConfig(compressor="rand-k", error_feedback=feedback)
    update, state = upload(delta, {}, LAYERS, choice, spec(0.2), None)
    drawn = seeded_indices(5, 1, 2, 10, 2)
    assert update.indices.tolist() == drawn.tolist()
    assert update.values.tolist() == [(1 if feedback else 5) * (index + 1) for index in drawn.tolist()]
    assert ("residual" in state) == feedback
    if feedback:
        assert (update.dense() + state["residual"]).tolist() == delta.tolist()
    payload = encode(update, client=2, server_round=1, seeded=True)
    assert decode(payload, size=10, seed=5).update == update


def test_rand_k_without_feedback_is_unbiased():
    delta = vector(1, -2, 3, 4)
    mean = np.mean([rand_k(delta, seeded_indices(0, t, 0, 4, 1), unbiased=True).dense() for t in range(4000)], axis=0)
    # An entry is 4 v with probability 1/4: standard deviation sqrt(3) |v| / sqrt(4000) = 0.027 |v|.
    np.testing.assert_allclose(mean, delta, rtol=4 * 0.027)


def test_qsgd_is_unbiased_and_its_error_is_bounded():
    rng = np.random.default_rng(3)
    delta = vector(0.3, -0.7, 0.0, 2.0, -0.01, 0.4, 0.0)
    draws = np.array([qsgd(delta, 2, 4, rng, unbiased=True).values for _ in range(4000)])
    norms = np.array([np.linalg.norm(delta[:4])] * 4 + [np.linalg.norm(delta[4:])] * 3)
    # One rounding is off by at most norm / s: a standard deviation of the mean of at most norm / (2 s sqrt(4000)).
    assert (np.abs(draws.mean(axis=0) - delta) < 4 * norms / (4 * np.sqrt(4000)) + 1e-7).all()
    grid = np.rint(draws / (norms / 2))
    np.testing.assert_allclose(draws, grid * norms / 2, rtol=1e-6)
    assert (np.abs(grid) <= 2).all()
    # omega = min(4 / 4, 2 / 2) = 1, in each bucket.
    error = np.square(draws - delta).sum(axis=1).mean()
    assert error <= 1.0 * float(np.square(delta).sum())


@given(
    arrays(np.float32, st.integers(1, 80), elements=st.floats(-1e6, 1e6, width=32)),
    st.integers(1, 40), st.integers(1, 90), st.integers(0, 99),
)  # fmt: skip
def test_qsgd_rounds_to_a_neighbour_on_the_grid(delta, levels, bucket, seed):
    update = qsgd(delta, levels, bucket, np.random.default_rng(seed), unbiased=True)
    assert update.indices is None
    for start in range(0, delta.size, min(bucket, delta.size)):
        part = delta[start : start + bucket]
        step = np.linalg.norm(part.astype(np.float64)) / levels
        assert (np.abs(update.values[start : start + bucket] - part) <= step * (1 + 1e-5) + 1e-30).all()
    assert decode(encode(update, client=0, server_round=0), size=delta.size).update == update


def test_qsgd_of_zeros_and_of_a_single_entry_is_exact():
    rng = np.random.default_rng(0)
    assert qsgd(np.zeros(5, np.float32), 4, 2, rng, unbiased=True).values.tolist() == [0.0] * 5
    alone = vector(0, 0, 0.1, 0, 0, -7e-5)
    np.testing.assert_allclose(qsgd(alone, 3, 3, rng, unbiased=True).values, alone, rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "levels", "step"), [(4, 1, 5 / 3), (16, 2, 5 / 6), (4, 4, 1.0), (512, 1, 5 / (1 + 128**0.5))]
)
def test_qsgd_with_feedback_is_scaled_to_contract(size, levels, step):
    """The norm is 5, and omega min(4, 2) = 2, min(4, 2) = 2, min(1/4, 1/2), and of buckets of 128 entries sqrt(128).

    The step is 5 / s / (1 + omega); the rest is kept.
    """
    delta = vector(3, 0, 0, -4, *[0] * (size - 4))
    choice = CompressionConfig(compressor="qsgd", qsgd_levels=levels)
    update, state = sent_by(choice, delta)
    multiples = np.abs(update.values) / step
    np.testing.assert_allclose(multiples, np.rint(multiples), atol=1e-6)
    assert 0 < multiples.max() < levels + 1e-6
    np.testing.assert_allclose(update.values + state["residual"], delta, rtol=1e-6)
    again, _ = sent_by(choice, delta)
    assert again == update
