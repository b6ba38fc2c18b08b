"""Quantised values and seeded indices on the wire; the rest of the codec is in test_codec.py."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update, WireError, bits_of_values, decode, encode, index_bits
from fedsel_app.wire.indices import seeded_indices
from fedsel_app.wire.values import Quantised
from tests.support.payloads import DENSE, RICE, every_change_is_noticed, forged_payload, payload_of


def quantised(norms, levels, bucket, s, *, size=None, indices=None):
    grid = Quantised(np.array(norms, np.float32), np.array(levels, np.int16), bucket, s)
    places = None if indices is None else np.array(indices, np.uint32)
    return Update(size or len(levels), places, grid.values(), grid)


def forged(section, *, coding=DENSE, size=8, count=None, value_coding=3):
    """A payload with a correct header and CRC-32 around any section."""
    count = size if count is None else count
    return forged_payload(section, value_coding=value_coding, coding=coding, size=size, count=count)


def section(levels_bytes, *, norms=(1.0,), bucket=8, s=3, nonzero=1, places=b"", claimed=None):
    head = struct.pack("<IIII", len(places) if claimed is None else claimed, bucket, s, nonzero)
    return head + places + struct.pack(f"<{len(norms)}f", *norms) + levels_bytes


def gamma_bits(levels):
    """The length of the run-length gamma code by its definition: a gamma code of k takes 2 floor(log2 k) + 1 bits."""
    total, run = 0, 0
    for level in levels:
        if level:
            total += (len(bin(run + 1)) - 3) * 2 + 1 + 1 + (len(bin(abs(level))) - 3) * 2 + 1
            run = 0
        else:
            run += 1
    return total


levels = st.lists(st.integers(-5, 5) | st.just(0) | st.integers(-32767, 32767), min_size=1, max_size=200)


@given(levels, st.integers(1, 70), st.integers(0, 2**32), st.booleans())
def test_decoding_returns_what_was_quantised(levels, bucket, seed, sparse):
    rng = np.random.default_rng(seed)
    bucket = min(bucket, len(levels))
    norms = rng.exponential(size=-(-len(levels) // bucket))
    size, indices = len(levels), None
    if sparse:
        size = 2 * len(levels)
        indices = np.sort(rng.choice(size, len(levels), replace=False))
    update = quantised(norms, levels, bucket, max(map(abs, [*levels, 1])), size=size, indices=indices)
    payload = payload_of(update)
    found = decode(payload, size=size).update
    assert found == update
    assert found.quantised.levels.tolist() == levels
    assert payload_of(found) == payload
    # Header and check sum 28 bytes, head 16, norms.
    plain = len(payload) - 28 - 16 - 4 * len(norms) - index_bits(payload) // 8
    assert plain == math.ceil(gamma_bits(levels) / 8)


def test_the_run_length_gamma_code_by_hand():
    """z = (0, 0, 0, 2, 0, -1, 3, 0, 0) is 19 bits.

    Runs + 1 are 4, 2, 1 and magnitudes 2, 1, 3. Their zeros and ones: 001 01 1 and 01 1 01. Signs: 0 1 0. Low bits,
    lowest plane, of those that have one, 4, 2, 2, 3: 0 0 0 1; second plane, of 4: 0.
    """
    update = quantised([2.0], [0, 0, 0, 2, 0, -1, 3, 0, 0], 9, 4)
    payload = payload_of(update)
    bits = "001011" + "01101" + "010" + "0001" + "0"
    assert len(bits) == 19
    expected = int(bits[::-1], 2).to_bytes(3, "little")
    assert payload[24:-4] == struct.pack("<IIIIf", 0, 9, 4, 3, 2.0) + expected
    assert update.values.tolist() == [0, 0, 0, 1.0, 0, -0.5, 1.5, 0, 0]
    # 32 bits per bucket; per entry a sign and 3 bits for the whole numbers 0..4.
    assert bits_of_values(update) == 32 + 9 * 4


def test_a_vector_of_zeros_has_only_its_norm():
    payload = payload_of(quantised([0.0], [0] * 1000, 1000, 16))
    assert len(payload) == 28 + 16 + 4
    assert decode(payload, size=1000).update.values.tolist() == [0.0] * 1000


def test_an_update_without_entries_has_no_norm():
    grid = Quantised(np.zeros(0, np.float32), np.zeros(0, np.int16), 1, 4)
    update = Update(9, np.zeros(0, np.uint32), np.zeros(0, np.float32), grid)
    payload = payload_of(update)
    assert len(payload) == 28 + 16
    assert decode(payload, size=9).update == update
    with pytest.raises(WireError, match=r"buckets of 1 to 1 of their 0 entries\. Got 2"):
        decode(forged(section(b"", norms=[], bucket=2, nonzero=0), coding=RICE, count=0), size=8)


good = section(b"\x07", nonzero=1)  # run + 1 = 1, magnitude 1, negative: 1 1 1


def test_forged_payloads_without_a_lie_are_accepted():
    found = decode(forged(good), size=8).update
    assert found.quantised.levels.tolist() == [-1, 0, 0, 0, 0, 0, 0, 0]
    found = decode(forged(section(b"\x07", places=b"\x05", bucket=2), coding=RICE, count=2), size=8).update
    assert found == quantised([1.0], [-1, 0], 2, 3, size=8, indices=[0, 2])


LIES = [
    (b"", "too short for quantised"),
    (section(b"\x07", claimed=10**9), "too short for 1000000000 bytes"),
    (section(b"\x07", places=b"\x00"), "must have 0"),
    (section(b"\x07", bucket=0), "buckets of 1 to 8"),
    (section(b"", bucket=1), "too short for the 8 norms"),
    (section(b"\x07", s=0), "1 to 32767 levels"),
    (section(b"\x07", s=32768), "1 to 32767 levels"),
    (section(b"\x07", norms=[math.nan]), "norm"),
    (section(b"\x07", norms=[-1.0]), "norm"),
    (section(b"\x07", norms=[-0.0]), "norm"),
    (section(b"\x07", nonzero=9), "cannot take"),
    (section(b"\x01"), "fewer than"),
    (section(b"\x00\x00\x00\x00\x03"), "too long"),
    (section(b"\x07\x00"), "take 1 bytes"),
    (section(b"\x0f"), "padding"),
    (section(b"\x48\x00"), "beyond 3"),  # magnitude code 0001001: 8 or more
    (section(b"\x30\x00"), "beyond its 8 values"),  # run code of 16
]


@pytest.mark.parametrize(("body", "reason"), LIES, ids=[reason for _, reason in LIES])
def test_lies_are_refused_for_the_right_reason(body, reason):
    with pytest.raises(WireError, match=reason):
        decode(forged(body), size=8)


def test_every_flipped_bit_cut_and_extension_is_noticed():
    every_change_is_noticed(payload_of(quantised([1.5, 0.25], [0, 3, -1, 0, 0, 2], 3, 4)), 6)


def test_unsendable_grids_are_refused():
    values = np.zeros(2, np.float32)
    for norms, levels, bucket, s in [([1.0], [5, 0], 2, 4), ([1.0, 1.0], [0, 0], 2, 4), ([np.nan], [0, 0], 2, 4)]:
        grid = Quantised(np.array(norms, np.float32), np.array(levels, np.int16), bucket, s)
        with pytest.raises(WireError, match=r"level must|norm"):
            payload_of(Update(2, None, values, grid))
    grid = Quantised(np.ones(1, np.float32), np.array([1, 0], np.int16), 2, 4)
    with pytest.raises(WireError, match="those of its levels"):
        payload_of(Update(2, None, values, grid))


# Seeded indices


def seeded_update(size=500, count=50, seed=7):
    indices = seeded_indices(seed, 9, 3, size, count)
    return Update(size, indices, np.arange(1, count + 1, dtype=np.float32))


def test_seeded_indices_take_four_bytes_and_are_drawn_again():
    update = seeded_update()
    payload = payload_of(update, seeded=True)
    assert len(payload) == 28 + 4 + 4 * 50
    assert index_bits(payload) == 32
    assert decode(payload, size=500, seed=7).update == update


@pytest.mark.parametrize(("seed", "reason"), [(None, "does not know"), (8, "the same 'seed'")])
def test_another_seed_is_noticed(seed, reason):
    with pytest.raises(WireError, match=reason):
        decode(payload_of(seeded_update(), seeded=True), size=500, seed=seed)


def test_another_client_or_round_is_noticed():
    for client, server_round in ((4, 9), (3, 10)):
        payload = encode(seeded_update(), client=client, server_round=server_round, seeded=True)
        with pytest.raises(WireError, match="other indices than the server"):
            decode(payload, size=500, seed=7)


def test_seeded_indices_are_uniform_without_replacement():
    counts = np.zeros(10)
    for server_round in range(2000):
        drawn = seeded_indices(1, server_round, 2, 10, 3)
        assert drawn.dtype == np.uint32
        assert (np.diff(drawn.astype(int)) > 0).all()
        counts[drawn] += 1
    # 600 expected in each, with a standard deviation of sqrt(2000 0.3 0.7) = 20.5.
    assert np.abs(counts - 600).max() < 4 * 20.5


def test_a_dense_update_stays_dense_under_a_seed():
    update = Update(4, None, np.ones(4, np.float32))
    assert decode(payload_of(update, seeded=True), size=4, seed=7).update == update
