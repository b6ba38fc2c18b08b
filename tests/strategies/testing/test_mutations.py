"""Mutated replies: none crashes the server, hangs it, has it allocate beyond the bound, or is aggregated."""

import logging
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.compression.compressors import qsgd
from fedsel_app.wire.codec import Update, encode
from fedsel_app.wire.indices import seeded_indices
from strategies.round.replies.values import MOST_BYTES_A_PARAMETER
from tests.support.payloads import sealed
from tests.support.stubs import as_sent, decoded, train_reply

SIZE, CLIENT, ROUND, SEED = 400, 3, 7, 11
MOST_BYTES = 64 * SIZE + 2 * (MOST_BYTES_A_PARAMETER * SIZE + 4096) + 20_000
"""Of the working memory: 64 bytes an entry, the largest payload twice, and Python's own objects."""
HANG_S = 5.0


def quantised(count):
    values = np.random.default_rng(2).normal(size=count).astype(np.float32)
    return qsgd(values, 16, 64, np.random.default_rng(3), unbiased=True)


def payloads():
    """One of every coding: dense, bitmap, Rice, seeded, quantised."""
    rng = np.random.default_rng(1)

    def some(indices):
        return Update(SIZE, indices.astype(np.uint32), rng.normal(size=indices.size).astype(np.float32))

    yield encode(Update(SIZE, None, rng.normal(size=SIZE).astype(np.float32)), client=CLIENT, server_round=ROUND)
    for count in (0, 5, 200):
        drawn = np.sort(rng.choice(SIZE, count, replace=False))
        yield encode(some(drawn), client=CLIENT, server_round=ROUND)
    drawn = seeded_indices(SEED, ROUND, CLIENT, SIZE, 40)
    yield encode(some(drawn), client=CLIENT, server_round=ROUND, seeded=True)
    yield encode(quantised(SIZE), client=CLIENT, server_round=ROUND)


TENSORS = [as_sent(np.frombuffer(payload, np.uint8))[0] for payload in payloads()]
CONTAINER = 128
"""Bytes of NumPy's header before the payload."""


@pytest.fixture(autouse=True)
def unlogged(monkeypatch):
    """pytest keeps every line that is logged, in memory that is not the server's."""
    monkeypatch.setattr(logging.getLogger("fedsel"), "disabled", True)


def receive(tensor):
    reply = train_reply([tensor], loss=1.0, work_steps=2.0)
    return decoded({CLIENT: reply}, [CLIENT], ROUND, SIZE, seed=SEED)


def refuse(tensor):
    began = time.perf_counter()
    replies = receive(tensor)
    assert time.perf_counter() - began < HANG_S
    assert replies.clients.size == 0
    assert replies.updates == ()
    [failure] = replies.failures
    assert failure["client"] == CLIENT


def mutated(rng):
    """A sound reply after a flip, a cut, a splice or an edit; or edits behind a check sum of the client's own (True).

    Only the latter may make another sound update: one that this client might as well have chosen to send.
    """
    tensor = bytearray(TENSORS[rng.integers(len(TENSORS))])
    kind = rng.integers(6)
    if kind == 0:
        for _ in range(rng.integers(1, 4)):
            tensor[rng.integers(len(tensor))] ^= 1 << rng.integers(8)
    elif kind == 1:
        del tensor[rng.integers(len(tensor)) :]
    elif kind == 2:
        other = TENSORS[rng.integers(len(TENSORS))]
        cut = rng.integers(1, min(len(other), len(tensor)))
        tensor = tensor[:cut] + other[rng.integers(len(other)) :]
    elif kind == 3:
        start = rng.integers(len(tensor))
        tensor[start : start + rng.integers(1, 60)] = rng.bytes(rng.integers(0, 60))
    elif kind == 4:
        body = bytearray(tensor[CONTAINER:-4])
        for _ in range(rng.integers(1, 3)):
            body[rng.integers(4, min(60, len(body)))] = rng.choice([0, 1, 2, 3, 127, 128, 255])
        return sealed_tensor(bytes(body)), True
    else:
        return sealed_tensor(bytes(tensor[CONTAINER : CONTAINER + 24]) + rng.bytes(rng.integers(0, 600))), True
    return bytes(tensor), False


def sealed_tensor(body):
    """A hostile client's own check sum, so that what follows it is reached."""
    return as_sent(np.frombuffer(sealed(body), np.uint8))[0]


def sound(replies):
    """Assert that the update to be aggregated is of this client and round, of finite numbers and of the right size."""
    [update] = replies.updates
    assert update.size == SIZE
    assert np.isfinite(update.values).all()
    if update.indices is not None:
        assert update.indices.size == update.values.size
        assert (np.diff(update.indices.astype(np.int64)) > 0).all()
        assert update.indices.max(initial=0) < SIZE


def traced(call, *arguments):
    """Return value of a call, and its peak memory."""
    tracemalloc.start()
    try:
        return call(*arguments), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def fuzz(seed, count, traced_every):
    """Throw `count` mutations; how many passed as what the client might as well have sent."""
    rng = np.random.default_rng(seed)
    passed = 0
    for index in range(count):
        tensor, resealed = mutated(rng)
        if tensor in TENSORS:
            continue
        began = time.perf_counter()
        if index % traced_every:
            replies = receive(tensor)
        else:
            replies, held = traced(receive, tensor)
            assert held < MOST_BYTES
        assert time.perf_counter() - began < HANG_S
        if replies.failures:
            assert not replies.updates
            assert replies.clients.size == 0
        else:
            assert resealed, "what was damaged on its way was aggregated"
            sound(replies)
            passed += 1
    return passed


def test_the_replies_are_sound_before_they_are_mutated():
    for tensor in TENSORS:
        sound(receive(tensor))


def flip(tensor, bits):
    for bit in bits:
        flipped = bytearray(tensor)
        flipped[bit // 8] ^= 1 << bit % 8
        refuse(bytes(flipped))


@pytest.mark.parametrize("tensor", TENSORS[1:3], ids=["empty", "sparse"])
def test_a_flip_of_one_bit_of_each_byte_is_caught(tensor):
    flip(tensor, [8 * byte + byte % 8 for byte in range(len(tensor))])


@given(st.sampled_from(TENSORS), st.data())
def test_whatever_hypothesis_cuts_and_pastes_is_refused(tensor, data):
    start = data.draw(st.integers(0, len(tensor)))
    stop = data.draw(st.integers(start, len(tensor)))
    pasted = data.draw(st.binary(max_size=80))
    changed = tensor[:start] + pasted + tensor[stop:]
    if changed != tensor:
        refuse(changed)


def test_a_thousand_mutations():
    assert fuzz(seed=0, count=1_000, traced_every=10) < 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_hundred_thousand_mutations(seed):
    fuzz(seed, count=10_000, traced_every=20)


@pytest.mark.slow
def test_every_single_bit_flip_of_every_coding_is_caught():
    for tensor in TENSORS:
        flip(tensor, range(8 * len(tensor)))
