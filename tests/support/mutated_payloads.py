"""Mutated payloads: valid payloads of every pair of codings with random damage and a repaired check sum."""

import random
import struct
import time
from collections import Counter
from typing import NamedTuple

import numpy as np

from fedsel_app.wire.codec import Packet, Update, WireError, decode, encode
from fedsel_app.wire.indices import seeded_indices
from fedsel_app.wire.ring import Multiples
from fedsel_app.wire.rounded_values import BLOCK, LEVELS, Rounded
from fedsel_app.wire.values import Quantised
from tests.support.payloads import DENSE, RICE, SEEDED, payload_of, sealed

SEED = 7
"""The run's seed, from which seeded indices are drawn."""
SIZES = (1, 2, 8, 9, 40, 300)
LARGE = 2_781_514
"""Number of parameters of AlexNet, the largest model that a payload claims."""
MOST_S = 5.0
"""Largest processor time of one payload."""
NUMBERS = (0, 1, 2, 7, 8, 255, 2**15, 2**16, LARGE, 2**31, 2**32 - 2, 2**32 - 1)
FLOATS = tuple(struct.pack("<f", number) for number in (np.nan, np.inf, -np.inf, -0.0, 3.4e38, 1e-45, -1.0))
KEPT = {RICE: 0.06, SEEDED: 0.3}


class Sound(NamedTuple):
    """Valid payload, its codings of values and of indices, and the size of its model."""

    payload: bytes
    pair: tuple[int, int]
    size: int


def quantised(values: int, count: int, rng: np.random.Generator) -> Quantised | Rounded | Multiples | None:
    """Random values in one of the codings of values."""
    if values == 1:
        return None
    if values == 3:
        bucket = int(rng.integers(1, max(count, 1) + 1))
        norms = rng.exponential(size=-(-count // bucket)).astype(np.float32)
        return Quantised(norms, rng.integers(-4, 5, count).astype(np.int16), bucket, 4)
    if values >= 7:
        return Multiples(8 * (values - 6), -9, -2, rng.integers(-50, 50, count).astype(np.int32))
    bits = {2: 16, 4: 8, 5: 4}[values]
    norms = rng.exponential(size=-(-count // BLOCK)).astype(np.float32)
    if bits == 16:
        return Rounded(bits, norms, rng.uniform(-1, 1, count).astype(np.float16))
    return Rounded(bits, norms, rng.integers(-LEVELS[bits], LEVELS[bits] + 1, count).astype(np.int8))


def sound_payload(values: int, indices: int, size: int, rng: np.random.Generator) -> Sound:
    """Payload of client 3 in round 9 with random contents in these codings, or in the shortest ones."""
    places = None
    if indices == SEEDED:
        places = seeded_indices(SEED, 9, 3, size, max(1, round(KEPT[SEEDED] * size)))
    elif indices != DENSE:
        places = np.flatnonzero(rng.random(size) < KEPT[indices]).astype(np.uint32)
    count = size if places is None else places.size
    levels = quantised(values, count, rng)
    numbers = rng.normal(size=count).astype(np.float32) if levels is None else levels.values()
    payload = payload_of(Update(size, places, numbers, levels), seeded=indices == SEEDED)
    return Sound(payload, (payload[5], payload[6]), size)


def sound_payloads() -> list[Sound]:
    """Payloads of all pairs and sizes."""
    rng = np.random.default_rng(5)
    values = (1, 2, 3, 4, 5, 7, 8, 9, 10)
    return [sound_payload(value, indices, size, rng) for value in values for indices in range(3) for size in SIZES]


def mutated(sound: Sound, others: list[Sound], rng: random.Random) -> tuple[bytes, int]:
    """Damage `sound` in one to four ways. Returns the payload and the size of the model that it is decoded for."""
    body, size = bytearray(sound.payload[:-4]), sound.size
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        at, kind = rng.randrange(len(body) + 1), rng.randrange(10)
        if kind == 0 and at < len(body):
            body[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(body):
            body[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        elif kind == 2:
            place = rng.choice((8, 12, 12, 16, 20, 24, 28, 32, 36, at))
            near = struct.unpack_from("<I", body, 12)[0] + rng.randint(-2, 2) if len(body) >= 16 else 0
            body[place : place + 4] = struct.pack("<I", rng.choice((*NUMBERS, size, near % 2**32)))
        elif kind == 3:
            body[rng.choice((5, 6, 7)) : 8] = bytes(
                rng.choice((*range(7), 31, 32, 255)) for _ in range(rng.randint(1, 3))
            )
            body[8:8] = bytes(max(0, 8 - len(body)))
        elif kind == 4:
            del body[at:]
        elif kind == 5:
            body += bytes(rng.randint(1, 9)) if rng.random() < 0.5 else rng.randbytes(rng.randint(1, 9))
        elif kind == 6:
            del body[at : at + rng.randint(1, 6)]
        elif kind == 7:
            body[at:at] = body[at : at + rng.randint(1, 12)] or b"\0"
        elif kind == 8:
            body[24:] = rng.choice(others).payload[24:-4]
        else:
            body[at : at + 4] = rng.choice(FLOATS)
    if rng.random() < 0.05 and len(body) >= 12:
        # The server's model has the size that the payload claims.
        size = rng.choice((1, 9, 1000, 100_000, LARGE))
        body[8:12] = struct.pack("<I", size)
    return sealed(bytes(body)), size


def require_sound(packet: Packet, payload: bytes, size: int) -> None:
    """Raise AssertionError unless an accepted payload contains exactly an update that a client could have sent."""
    update, (values, indices, _, *header) = packet.update, struct.unpack_from("<BBBIIII", payload, 5)
    assert [update.size, update.count, packet.client, packet.server_round] == header
    assert update.size == size
    assert update.values.dtype == (np.float64 if payload[5] == 10 else np.float32)
    assert np.isfinite(update.values).all()
    assert (update.indices is None) == (indices == DENSE)
    assert (update.quantised is None) == (values == 1)
    if update.indices is not None:
        places = update.indices.astype(np.int64)
        assert places.shape == update.values.shape
        assert (np.diff(places, prepend=-1) > 0).all()
        assert places.size == 0 or places[-1] < size
    seeded = indices == SEEDED
    if seeded:
        drawn = seeded_indices(SEED, packet.server_round, packet.client, size, update.count)
        np.testing.assert_array_equal(update.indices, drawn)
    again = encode(update, client=packet.client, server_round=packet.server_round, seeded=seeded)
    assert decode(again, size=size, seed=SEED) == packet
    assert len(again) <= len(payload)


def decode_mutated(count: int, seed: int) -> dict[str, float]:
    """Decode `count` mutated payloads: how many were tried, accepted and of the rarest pair, and the slowest in s.

    Raises AssertionError, with the payload, for any exception but WireError and for an accepted invalid payload.
    """
    rng, others = random.Random(seed), sound_payloads()
    pairs: Counter[tuple[int, int]] = Counter()
    accepted, slowest_s = 0, 0.0
    for number in range(count):
        sound = others[number % len(others)]
        payload, size = mutated(sound, others, rng)
        began_s = time.process_time()
        try:
            packet = decode(payload, size=size, seed=SEED)
        except WireError:
            packet = None
        except BaseException as error:
            raise AssertionError(f"{error!r} of {payload.hex()} for {size} entries") from error
        slowest_s = max(slowest_s, time.process_time() - began_s)
        pairs[sound.pair] += 1
        if packet is not None:
            accepted += 1
            try:
                require_sound(packet, payload, size)
            except BaseException as error:
                raise AssertionError(f"accepted {payload.hex()} for {size} entries") from error
    return {"tried": sum(pairs.values()), "accepted": accepted, "pairs": len(pairs), "rarest": min(pairs.values())} | {
        "slowest_s": slowest_s
    }
