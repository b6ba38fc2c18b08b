"""Mutated replies: none crashes the server, hangs it, has it allocate beyond the bound, or is aggregated.

A hundred thousand mutated payloads go through the codec alone in tests/attacks/test_mutations.py.
"""

import logging
import random
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update, decode
from strategies.round.replies.values import MOST_BYTES_A_PARAMETER
from tests.support.mutated_payloads import SEED, Sound, mutated, require_sound, sound_payloads
from tests.support.payloads import payload_of
from tests.support.stubs import as_sent, decoded, train_reply

CLIENT, ROUND, SIZE = 3, 9, 300
EMPTY = payload_of(Update(SIZE, np.zeros(0, np.uint32), np.zeros(0, np.float32)))
SOUND = [Sound(EMPTY, (EMPTY[5], EMPTY[6]), SIZE), *(sound for sound in sound_payloads() if sound.size == SIZE)]
TENSORS = [as_sent(np.frombuffer(sound.payload, np.uint8))[0] for sound in SOUND]
"""A reply's array without entries, and one in every pair of codings."""
MOST_BYTES = 64 * SIZE + 2 * (MOST_BYTES_A_PARAMETER * SIZE + 4096) + 20_000
"""Of the working memory: 64 bytes an entry, the largest payload twice, and Python's own objects."""
HANG_S = 5.0


@pytest.fixture(autouse=True)
def unlogged(monkeypatch):
    """pytest keeps every line that is logged, in memory that is not the server's."""
    monkeypatch.setattr(logging.getLogger("fedsel"), "disabled", True)


def receive(tensor):
    began = time.perf_counter()
    reply = train_reply([tensor], loss=1.0, work_steps=2.0)
    replies = decoded({CLIENT: reply}, [CLIENT], ROUND, SIZE, seed=SEED)
    assert time.perf_counter() - began < HANG_S
    return replies


def refuse(tensor):
    replies = receive(tensor)
    assert replies.clients.size == 0
    assert replies.updates == ()
    [failure] = replies.failures
    assert failure["client"] == CLIENT


def test_the_replies_are_sound_before_they_are_mutated():
    for tensor, sound in zip(TENSORS, SOUND, strict=True):
        [update] = receive(tensor).updates
        assert update == decode(sound.payload, size=SIZE, seed=SEED).update


def flip(tensor, bits):
    for bit in bits:
        flipped = bytearray(tensor)
        flipped[bit // 8] ^= 1 << bit % 8
        refuse(bytes(flipped))


@pytest.mark.parametrize("tensor", [TENSORS[0], *TENSORS[2:4]], ids=["empty", "bitmap", "Rice"])
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


def test_a_thousand_mutations_behind_a_check_sum_of_the_clients_own():
    """Each is refused, or is another update that this client might as well have chosen to send."""
    rng, accepted = random.Random(0), 0
    for number in range(1000):
        payload, _ = mutated(SOUND[number % len(SOUND)], SOUND, rng)
        [tensor] = as_sent(np.frombuffer(payload, np.uint8))
        if number % 10:
            replies = receive(tensor)
        else:
            tracemalloc.start()
            try:
                replies = receive(tensor)
                assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
            finally:
                tracemalloc.stop()
        assert len(replies.updates) == 1 - len(replies.failures)
        if replies.updates:
            accepted += 1
            require_sound(decode(payload, size=SIZE, seed=SEED), payload, SIZE)
            assert replies.updates[0] == decode(payload, size=SIZE, seed=SEED).update
    assert 0 < accepted < 500


@pytest.mark.slow
def test_every_single_bit_flip_of_every_coding_is_caught():
    for tensor in TENSORS:
        flip(tensor, range(8 * len(tensor)))
