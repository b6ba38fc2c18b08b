"""Rounded values on the wire, 16, 8 and 4 bits each; the rest of the codec is in test_codec.py."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update, WireError, bits_of_values, decode, index_bits
from fedsel_app.wire.rounded_values import Rounded, bits_an_entry, round_values
from tests.support.payloads import DENSE, RICE, every_change_is_noticed, forged_payload, payload_of

CODING = {16: 2, 8: 4, 4: 5}
TOP = {16: 1.0, 8: 127, 4: 7}


def update_of(bits, norms, levels, *, size=None, indices=None):
    grid = Rounded(bits, np.array(norms, np.float32), np.array(levels, np.float16 if bits == 16 else np.int8))
    places = None if indices is None else np.array(indices, np.uint32)
    return Update(size or len(levels), places, grid.values(), grid)


def forged(bits, values, *, size=3, count=None, coding=DENSE, places=b""):
    """A payload with a correct header and CRC-32 around any values."""
    count = size if count is None else count
    return forged_payload(places + values, value_coding=CODING[bits], coding=coding, size=size, count=count)


def drawn(bits, count, seed):
    """Random norms and levels, including the smallest and the largest level."""
    rng = np.random.default_rng(seed)
    norms = rng.exponential(size=math.ceil(count / 256)) * 10.0 ** rng.integers(-40, 38)
    if bits == 16:
        return norms, np.concatenate((rng.uniform(-1, 1, count), [1, -1, 0.0, -0.0]))[-count:]
    return norms, rng.integers(-TOP[bits], TOP[bits] + 1, count)


@given(st.sampled_from([16, 8, 4]), st.integers(1, 1100), st.integers(0, 2**32), st.booleans())
def test_decoding_returns_what_was_rounded(bits, count, seed, sparse):
    norms, levels = drawn(bits, count, seed)
    size, indices = count, None
    if sparse:
        size = 3 * count
        indices = np.sort(np.random.default_rng(seed).choice(size, count, replace=False))
    update = update_of(bits, norms, levels, size=size, indices=indices)
    payload = payload_of(update)
    found = decode(payload, size=size)
    assert (found.client, found.server_round) == (3, 9)
    assert found.update == update
    assert found.update.quantised.levels.tobytes() == update.quantised.levels.tobytes()
    assert payload_of(found.update) == payload
    plain = 28 + 4 * math.ceil(count / 256) + math.ceil(count * bits / 8)
    assert len(payload) == plain + index_bits(payload) // 8
    assert bits_of_values(found.update) == 32 * count


@pytest.mark.parametrize(
    ("bits", "levels", "stored", "values"),
    [
        (4, [7, -7, 1], b"\x97\x01", [14.0, -14.0, 2.0]),  # -7 is 1001
        (8, [127, -127, 1], b"\x7f\x81\x01", [14.0, -14.0, 14 / 127]),
        (16, [1.0, -1.0, 0.5], b"\x00\x3c\x00\xbc\x00\x38", [14.0, -14.0, 7.0]),
    ],
)
def test_the_bytes_by_hand(bits, levels, stored, values):
    update = update_of(bits, [14.0], levels)
    assert payload_of(update) == forged(bits, struct.pack("<f", 14.0) + stored)
    np.testing.assert_allclose(update.values, values, rtol=1e-7)


def test_a_block_of_256_has_its_own_norm():
    update = update_of(4, [7.0, 70.0], [1] * 257)
    assert update.values.tolist() == [1.0] * 256 + [10.0]
    # 4 bits, and 32 of the norm over 256.
    assert [bits_an_entry(bits) for bits in (32, 16, 8, 4)] == [32, 16.125, 8.125, 4.125]


@pytest.mark.parametrize(
    ("bits", "values", "levels"),
    [
        (4, [14.0, -3.1, 2.9, -0.9], [7, -2, 1, 0]),
        (8, [12.7, -6.34, 0.06, 0.0], [127, -63, 1, 0]),
        (16, [8.0, -4.0, 1.0, 8 / 3], [1.0, -0.5, 0.125, np.float16(1 / 3)]),
    ],
)
def test_values_are_rounded_to_the_nearest_level_of_their_block(bits, values, levels):
    """Steps of 14/7 = 2 and 12.7/127 = 0.1; a float16 of the share. The second block has a norm of its own, or none."""
    found = round_values(np.array([*values, *[0.0] * 252, values[0] / 2], np.float32), bits)
    np.testing.assert_allclose(found.norms, [values[0], values[0] / 2])
    assert found.levels[:4].tolist() == levels
    assert found.levels[-1] == TOP[bits]
    assert round_values(np.zeros(3, np.float32), bits).levels.tolist() == [0] * 3


@pytest.mark.parametrize(("bits", "step"), [(4, 2.0), (8, 0.1)])
def test_rounding_at_random_takes_a_neighbour_and_is_right_on_average(bits, step):
    """0.3 of the way from one level to the next, both ways; the largest value stays."""
    values = np.array([TOP[bits] * step, *[1.3 * step, -1.3 * step] * 100], np.float32)
    rng = np.random.default_rng(0)
    drawn = np.stack([round_values(values, bits, rng).levels for _ in range(20)])
    assert (drawn[:, 0] == TOP[bits]).all()
    assert set(drawn[:, 1::2].ravel().tolist()) == {1, 2}
    assert set(drawn[:, 2::2].ravel().tolist()) == {-2, -1}
    assert drawn[:, 1::2].mean() == pytest.approx(1.3, abs=0.04)
    assert drawn[:, 2::2].mean() == pytest.approx(-1.3, abs=0.04)


ONE = struct.pack("<f", 1.0)
LIES = [
    (forged(4, ONE + b"\x08\x00"), r"level .* \[-7, 7\]"),
    (forged(8, ONE + b"\x80\x00\x00"), r"level .* \[-127, 127\]"),
    (forged(16, ONE + b"\x01\x3c" + bytes(4)), r"level .* \[-1, 1\]"),
    (forged(16, ONE + b"\x00\x7e" + bytes(4)), "level"),
    (forged(4, ONE + b"\x00\x10"), "padding"),
    (forged(4, ONE + b"\x00"), "too short"),
    (forged(8, ONE + bytes(2)), "too short"),
    (forged(8, ONE + bytes(4)), "must have 0"),
    (forged(8, ONE + bytes(2), count=2), "dense, and has 2 of 3"),
    (forged(8, ONE + bytes(2), count=2, coding=RICE, places=b"\x01"), "lists 1 indices"),
    (forged(8, b"", count=2**32 - 1), "claims"),
    *((forged(8, struct.pack("<f", norm) + bytes(3)), "norm") for norm in (math.nan, math.inf, -1.0, -0.0)),
]


@pytest.mark.parametrize(("payload", "reason"), LIES, ids=[reason for _, reason in LIES])
def test_lies_are_refused_for_the_right_reason(payload, reason):
    with pytest.raises(WireError, match=reason):
        decode(payload, size=3)


def test_forged_payloads_without_a_lie_are_accepted():
    assert decode(forged(8, ONE + b"\x01\x02\x03"), size=3).update == update_of(8, [1.0], [1, 2, 3])
    found = decode(forged(4, ONE + b"\x21", count=2, coding=RICE, places=b"\x05"), size=3).update
    assert found == update_of(4, [1.0], [1, 2], size=3, indices=[0, 2])


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_every_flipped_bit_cut_and_extension_is_noticed(bits):
    norms, levels = drawn(bits, 300, 5)
    payload = payload_of(update_of(bits, norms, levels, size=320, indices=range(10, 310)))
    every_change_is_noticed(payload, 320)


def test_unsendable_ones_are_refused():
    lying = [
        (Rounded(8, np.ones(2, np.float32), np.zeros(2, np.int8)), "1 norms"),
        (Rounded(8, np.full(1, np.nan, np.float32), np.zeros(2, np.int8)), "norm"),
        (Rounded(4, np.ones(1, np.float32), np.array([8, 0], np.int8)), "level"),
        (Rounded(16, np.ones(1, np.float32), np.array([1, 0], np.int8)), "levels of int8"),
        (Rounded(4, np.ones(1, np.float32), np.array([7, 0], np.int8)), "those of its levels"),
    ]
    for grid, reason in lying:
        with pytest.raises(WireError, match=reason):
            payload_of(Update(2, None, np.zeros(2, np.float32), grid))
