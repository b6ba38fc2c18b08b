import itertools
import math
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update, WireError, bits_of_values, decode, encode, index_bits
from strategies.testing.fakes import dense
from tests.support.payloads import DENSE, RICE, every_change_is_noticed, forged_payload, payload_of, sealed
from tests.support.updates import sparse

HUGE = 2**32 - 1
LARGEST, SMALLEST = 3.4028234663852886e38, 1.401298464324817e-45  # of positive float32


def drawn(size, kept_fraction, seed):
    """Random places, and values of random bits; a kept fraction above 1 is a dense update."""
    rng = np.random.default_rng(seed)
    indices = None if kept_fraction > 1 else np.flatnonzero(rng.random(size) < kept_fraction).astype(np.uint32)
    bits = rng.integers(0, 2**32, size if indices is None else len(indices), np.uint32)
    bits[bits & 0x7F800000 == 0x7F800000] = 0x80000000  # infinities and NaNs to -0.0
    return Update(size, indices, bits.view(np.float32))


def forged(places, values, coding=RICE, b=0, *, size=8, count=None, value_coding=1, **header):
    """A payload written without `encode`. Its check sum is correct, and anything else in it may be false."""
    count = len(values) if count is None else count
    section, header = places + struct.pack(f"<{len(values)}f", *values), {"parameter": b} | header
    return forged_payload(section, value_coding=value_coding, coding=coding, size=size, count=count, **header)


updates = st.builds(drawn, st.integers(1, 300), st.floats(0, 1.2), st.integers(0, 2**32))
SMALL = {
    "dense": dense([1.5, -0.0, SMALLEST]),
    "Rice": sparse(90, [2, 3, 40, 71, 89]),
    "Rice with b = 0": sparse(40, [0, 1, 2, 3]),
    "empty": sparse(5, []),
    "far apart": sparse(HUGE, [0, 1, 2**31, HUGE - 1]),
}
small = pytest.mark.parametrize("update", SMALL.values(), ids=SMALL.keys())


@given(updates, st.integers(0, HUGE), st.integers(0, HUGE))
def test_decoding_returns_what_was_encoded(update, client, server_round):
    packet = decode(encode(update, client=client, server_round=server_round), size=update.size)
    assert (packet.client, packet.server_round, packet.update.size) == (client, server_round, update.size)
    assert packet.update == update
    assert packet.update.values.tobytes() == update.values.tobytes()
    assert (packet.update.indices is None) == (update.indices is None)
    if update.indices is not None:
        np.testing.assert_array_equal(packet.update.indices, update.indices, strict=True)


def test_values_of_float64_take_8_bytes_each_and_keep_their_bits():
    for indices in (None, np.array([1, 7], np.uint32)):
        update = Update(2 if indices is None else 9, indices, np.array([1 / 3, -1e300]))
        found = decode(payload_of(update), size=update.size).update
        assert found == update
        assert found.dense().dtype == np.float64
        assert bits_of_values(found) == 128
    assert np.isinf(Update(1, None, np.array([1e300])).norm())


def test_rice_bytes_by_hand():
    """Indices 1, 6, 7, 20 of 40, so gaps 1, 4, 0, 12.

    b = 2: quotients 0, 1, 0, 3 are 1 01 1 0001 = 0x8D from the lowest bit; low bits 01, 00, 00, 00 are
    the planes 1000 and 0000 = 0x01: two bytes. b = 0 takes 21 bits, b = 1 takes 12 and 4 bits, each of them
    three bytes; b = 3 takes 5 and 12 bits, three.
    """
    body = bytes.fromhex(
        "4653454c 01 01 01 02"  # FSEL, version 1, float32, Rice, b = 2
        "28000000 04000000 07010000 02000000"  # size 40, count 4, client 263, round 2
        "8d 01"  # unary codes, low bits
        "0000803f 000000c0 0000003f 00000080"  # 1.0, -2.0, 0.5, -0.0
    )
    update = sparse(40, [1, 6, 7, 20], [1.0, -2.0, 0.5, -0.0])
    assert encode(update, client=263, server_round=2) == sealed(body)
    assert decode(sealed(body), size=40).update == update
    assert (bits_of_values(update), index_bits(sealed(body))) == (128, 16)


def test_bytes_of_half_of_the_entries_and_of_all_by_hand():
    half = payload_of(sparse(10, [0, 2, 3, 5, 7, 9], [1.0] * 6))  # b = 0: 1011 0101 01, lowest bit first
    assert half[4:-4].hex() == "010101000a000000060000000300000009000000ad02" + "0000803f" * 6
    plain = payload_of(dense([1.0, 2.0]))
    assert plain[4:-4].hex() == "01010000020000000200000003000000090000000000803f00000040"


@pytest.mark.parametrize("kept_fraction", [0.01, 0.05, 0.1, 0.2, 0.3])
def test_random_masks_cost_at_most_1_05_of_their_entropy(kept_fraction):
    update = drawn(200_000, kept_fraction, seed=0)
    p = update.count / update.size
    entropy_bits = -update.size * (p * math.log2(p) + (1 - p) * math.log2(1 - p))
    assert 0.99 * entropy_bits < index_bits(payload_of(update)) <= 1.05 * entropy_bits


@given(st.integers(1, 300), st.floats(0, 1), st.integers(0, 2**32))
def test_no_other_rice_parameter_and_no_bitmap_is_shorter(size, kept_fraction, seed):
    update = drawn(size, kept_fraction, seed)
    indices = update.indices.tolist()
    gaps = [here - before - 1 for before, here in zip([-1, *indices], indices, strict=False)]
    lengths = [math.ceil(size / 8)]
    for b in range(32):
        unary = "".join("0" * (gap >> b) + "1" for gap in gaps)
        lengths.append(math.ceil(len(unary) / 8) + math.ceil(b * len(gaps) / 8))
    assert index_bits(payload_of(update)) == 8 * min(lengths)


@small
def test_every_flipped_bit_cut_and_extension_is_noticed(update):
    payload = payload_of(update)
    assert decode(payload, size=update.size).update == update
    every_change_is_noticed(payload, update.size)


TWO = [1.0, 2.0]
LIES = [
    (b"", "cut short"),
    (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False}", "not an update"),
    (forged(b"\x05", TWO, start=b"FSEL\x02"), "version 2"),
    (forged(b"\x05", TWO)[:-1] + b"\x00", "damaged"),
    (forged(b"\x05", TWO, value_coding=0), "unknown"),
    (forged(b"\x05", TWO, value_coding=2), "level of rounded values"),
    (forged(b"\x05", TWO, 5), "unknown coding 5"),
    (forged(b"\x05", TWO, size=9), "9 entries; this one has 8"),
    (forged(b"\xff\x01", [1.0] * 9), "claims 9 of 8"),
    (forged(b"\x05", TWO, count=8), "too short"),
    (forged(b"", [1.0], DENSE), "dense, and has 1 of 8"),
    (forged(b"\x01", [1.0] * 8, DENSE), "must have 0"),
    (forged(b"", [1.0] * 8, DENSE, 1), "Rice parameter is 1"),
    (forged(b"\x05" + bytes(8), TWO, b=32), "Rice parameter is 32"),
    (forged(b"\x05", [1.0]), "lists 2 indices"),
    (forged(b"\x00", []), "superfluous bytes"),
    (forged(b"\x05\x00", TWO), "cannot take"),
    (forged(b"\x03\x06", TWO, b=1), "padding"),
    (forged(b"\x20\x00", [1.0], b=1), "index of 10"),
    (forged(b"\x05", [1.0, math.inf]), "not finite"),
]


@pytest.mark.parametrize(("payload", "reason"), LIES, ids=[reason for _, reason in LIES])
def test_lies_are_refused_for_the_right_reason(payload, reason):
    with pytest.raises(WireError, match=reason):
        decode(payload, size=8)


def test_forged_payloads_without_a_lie_are_accepted():
    for payload in (forged(b"\x05", TWO), forged(b"\x03\x02", TWO, b=1)):
        assert decode(payload, size=8).update == sparse(8, [0, 2])
    assert decode(forged(b"", TWO, DENSE, size=2), size=2).update == dense(TWO)


def test_lies_about_size_use_no_memory():
    """Payloads of about 40 bytes that claim 4 GiB, even if the model has the claimed size."""
    codings = [(DENSE, 0), (RICE, 0), (RICE, 1), (RICE, 31)]
    claims = [(HUGE, 2), (HUGE, HUGE - 1), (HUGE, HUGE), (8, HUGE)]
    tracemalloc.start()
    for places, coding, claim, size in itertools.product((b"", b"\x01", b"\x01" * 9), codings, claims, (8, HUGE)):
        with pytest.raises(WireError):
            decode(forged(places, [1.0], *coding, size=claim[0], count=claim[1]), size=size)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000


UNSENDABLE = [
    (sparse(9, [1, 2], [1.0, math.nan]), "client 3 holds a value that is not finite"),
    (sparse(9, [2, 1]), "strictly increasing"),
    (sparse(9, [2, 9]), "below its size, 9. Got 9"),
    (sparse(9, [2, 3], [1.0]), r"uint32 \(1,\)"),
    (Update(9, np.array([2, 3]), np.ones(2, np.float32)), "Got int64"),
    (Update(9, np.array([[2, 3]], np.uint32), np.ones((1, 2), np.float32)), r"float64 \(count,\)"),
    (Update(2, None, np.ones(2, np.float16)), "Got float16"),
    (Update(3, None, np.ones(2, np.float32)), "as many values. Got 2"),
    (dense([]), "size must be in"),
]


@pytest.mark.parametrize(("update", "reason"), UNSENDABLE, ids=[reason for _, reason in UNSENDABLE])
def test_unsendable_updates_are_refused(update, reason):
    with pytest.raises(WireError, match=reason):
        payload_of(update)


@given(updates)
def test_norms_are_those_of_the_dense_vector(update):
    full = [0.0] * update.size
    places = range(update.size) if update.indices is None else update.indices.tolist()
    for place, value in zip(places, update.values.tolist(), strict=True):
        full[place] = value
    assert update.dense().tolist() == full
    assert update.norm() == pytest.approx(math.hypot(*full), rel=1e-12)
    assert update.largest() == max(map(abs, full), default=0.0)
