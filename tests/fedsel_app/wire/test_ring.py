"""The ring of common-k: multiples of a grid, their sums, and the statement of a round's entries."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import WireError, decode
from fedsel_app.wire.entries import RoundEntries, decode_entries, drawn_entries, encode_entries, of_entries
from fedsel_app.wire.ring import (
    LOWEST,
    RINGS,
    exponent_of,
    from_ring,
    grid_of,
    largest,
    next_exponent,
    one_hot,
    quantise,
    to_ring,
    words_as_bytes,
    words_of_bytes,
)
from tests.support.payloads import every_change_is_noticed, payload_of

rings = st.sampled_from(RINGS)


@pytest.mark.parametrize(
    ("bits", "clients", "most"),
    [
        *((16, 10, 3_276), (16, 100, 327), (16, 1000, 32), (24, 10, 838_860), (24, 100, 83_886), (24, 1000, 8_388)),
        *((32, 10, 214_748_364), (32, 100, 21_474_836), (32, 1000, 2_147_483), (8, 10, 12), (8, 100, 1), (8, 128, 0)),
        *((6, 10, 3), (6, 31, 1), (6, 32, 0)),
    ],
)
def test_the_largest_multiple(bits, clients, most):
    assert largest(bits, clients) == most


@pytest.mark.parametrize(
    ("bits", "clients", "grid"),
    [(16, 10, -11), (16, 1000, -5), (24, 10, -19), (8, 3, -5), (8, 10, -5), (8, 100, -5), (6, 10, -5)],
)
def test_the_grid_has_32_multiples_or_more_up_to_the_exponent(bits: int, clients: int, grid: int) -> None:
    """Q is 3,276, 32, 838,860, 42, 12 and 1."""
    assert grid_of(0, bits, clients) == grid
    assert grid_of(7, bits, clients) == grid + 7


@given(rings, st.integers(1, 100), st.integers(0, 2**32), st.integers(-40, 10))
def test_sums_of_multiples_stay_in_the_ring_and_nothing_is_lost(bits, clients, seed, grid):
    values = np.random.default_rng(seed).normal(size=(clients, 5)).astype(np.float32)
    most, total = largest(bits, clients), np.zeros(5, np.uint32)
    for client in values:
        integers, rest = quantise(client, grid, bits, clients)
        for value, integer, remains in zip(client.tolist(), integers.tolist(), rest.tolist(), strict=True):
            assert integer == max(-most, min(most, round(value / 2.0**grid)))
            assert remains == np.float32(value - integer * 2.0**grid)
        total = to_ring(total + to_ring(integers, bits), bits)
    exact = sum(quantise(client, grid, bits, clients)[0].astype(np.int64) for client in values)
    assert from_ring(total, bits).tolist() == exact.tolist()
    assert words_of_bytes(words_as_bytes(total, bits), bits, 5).tolist() == total.tolist()


@given(rings, st.integers(1, 31), st.integers(1, 300), st.integers(0, 2**32), st.integers(LOWEST, 60), st.booleans())
def test_decoding_returns_what_was_sent_and_what_was_stated(bits, clients, size, seed, exponent, alike):
    rng = np.random.default_rng(seed)
    exploited = np.flatnonzero(rng.random(size) < 0.2).astype(np.uint32)
    explored = int(rng.integers(exploited.size == 0, size - exploited.size + 1))
    whole = exploited.size + explored == size
    indices = None if whole else drawn_entries(exploited, explored, size, seed, 9)
    stated = encode_entries(RoundEntries(indices, bits, exponent, clients, 3 * clients), exploited, size, seed)
    entries = decode_entries(stated, size, 9)
    assert (entries.bits, entries.exponent, entries.clients) == (bits, exponent, clients)
    assert [entries.weight(examples) for examples in (clients, 3 * clients, 9 * clients)] == [1 / 3, 1.0, 1.0]
    if not whole:
        assert set(exploited.tolist()) <= set(entries.indices.tolist())
        np.testing.assert_array_equal(entries.indices, indices, strict=True)
    vector = (rng.normal(size=size) * 2.0**exponent).astype(np.float32)
    update = entries.update(np.full_like(vector, 2.0**exponent) if alike else vector, 3 * clients)
    assert update.quantised.exponent == exponent + 1 or not alike
    payload = payload_of(of_entries(update))
    assert len(payload) == 31 + -(-update.count * bits // 8)
    found = entries.placed(decode(payload, size=entries.count(size)).update, size)
    assert found == update
    assert decode(payload_of(update), size=size).update == update  # with its own indices


def test_every_change_of_a_payload_is_noticed():
    entries = RoundEntries(None, 16, 0, 3)
    every_change_is_noticed(payload_of(entries.update(np.array([0.5, -0.25, 0.0], np.float32), 10)), 3)


def test_a_changed_statement_is_refused_or_names_as_many_entries():
    indices = drawn_entries(np.array([3, 5], np.uint32), 4, 20, 7, 2)
    honest = encode_entries(RoundEntries(indices, 16, -2, 10), np.array([3, 5], np.uint32), 20, 7)
    for at in range(32):
        stated = bytearray(honest)
        stated[at] ^= 0xFF
        with contextlib.suppress(WireError):
            assert np.array_equal(decode_entries(bytes(stated), 20, 2).indices, indices)


def test_one_liar_cannot_move_the_grid():
    honest = sum(one_hot(exponent) for exponent in (-9, -8, -8))
    for lie in (LOWEST, 60):
        assert next_exponent(honest + one_hot(lie), 0, 4) == -8
    assert next_exponent(one_hot(60), -8, 4) == next_exponent(0 * one_hot(0), -8, 4) == -8  # only one replied, or none
    assert next_exponent(one_hot(-5), -8, 1) == -5  # the only client of the round
    assert exponent_of(np.zeros(3)) == LOWEST
    assert [exponent_of(np.array([value])) for value in (-1.0, 0.99, 1e-30, 1e30)] == [1, 0, LOWEST, 64]


def test_a_value_that_is_not_finite_is_refused():
    with pytest.raises(WireError, match="did its training diverge"):
        quantise(np.array([1.0, np.nan], np.float32), -3, 16, 4)
