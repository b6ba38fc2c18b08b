"""Lies for scripted message attacks: each changes a client's valid answer to a false one."""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from fedsel_app.wire.codec import decode, encode
from strategies.round.federation import NodeError, Reply
from strategies.testing.fakes import dense
from tests.support.payloads import sealed
from tests.support.stubs import as_sent, sent_payload, with_payload

LIAR, SIZE = 2, 24
"""The client that lies, and the entries of its model."""
STATISTICS = SIZE // 4
MISSING = object()
LIES = (MISSING, math.nan, math.inf, -math.inf, 1e308, 10**30, -1, -1.0, True, b"\0\1", [1.0, 2.0], "1", "x" * 5000)
FIT, EVALUATE, ENROL, CALIBRATE = "train", "evaluate", "query", "calibrate"
Change = Callable[[Any, Any], Any]
"""Function of the valid answer and of the `Attacked` clients."""


@dataclass(frozen=True)
class Attack:
    """Attack: `change` changes the liar's valid answer; `refused`: True if the server must not aggregate it."""

    name: str
    message: str
    change: Change
    refused: bool = True


def with_metric(name: str, lie: object) -> Change:
    def change(reply, clients):
        metrics = {key: value for key, value in reply.metrics.items() if key != name}
        return replace(reply, metrics=metrics if lie is MISSING else metrics | {name: lie})

    return change


def failing(text: str) -> Change:
    """An error in place of the reply."""
    return lambda reply, clients: NodeError(f"node-{LIAR}", text)


def with_field(name: str, lie: object) -> Change:
    return lambda reply, clients: replace(reply, **{name: None if lie is MISSING else lie})


def with_payload_of(make: Callable[[bytes], bytes]) -> Change:
    """The reply with another payload in each of its arrays, in the correct form."""
    return lambda reply, clients: with_payload(reply, make(sent_payload(reply)))


def with_tensors(make: Callable[[list[bytes]], list[bytes]]) -> Change:
    return lambda reply, clients: replace(reply, tensors=make(reply.tensors))


def resent(**header: int) -> Callable[[bytes], bytes]:
    """A valid payload of the same update with changed numbers in its header."""

    def make(payload):
        packet = decode(payload, size=SIZE)
        return encode(
            packet.update,
            client=packet.client + header.get("client", 0),
            server_round=packet.server_round + header.get("server_round", 0),
        )

    return make


def forged(place: int, content: bytes) -> Callable[[bytes], bytes]:
    """The payload with other bytes at a position (negative: from the end) and the correct check sum."""
    return lambda payload: sealed(payload[:-4][:place] + content + payload[:-4][place:][len(content) :])


def value(number: float) -> Callable[[bytes], bytes]:
    return forged(-4, struct.pack("<f", number))


def of_size(size: int) -> Callable[[bytes], bytes]:
    return lambda payload: encode(
        dense([1.0] * size), client=LIAR, server_round=struct.unpack_from("<I", payload, 20)[0]
    )


def again(reply: Reply, clients: Any) -> Reply:
    """The first round's reply in every round. In the first round itself, a reply of an earlier round."""
    if reply is not clients.first:
        return clients.first
    return with_payload(reply, resent(server_round=-1)(sent_payload(reply)))


TENSORS: dict[str, Change] = {
    "no array": with_tensors(lambda tensors: []),
    "an array more": with_tensors(lambda tensors: [*tensors, tensors[0]]),
    "empty arrays": with_tensors(lambda tensors: [b""] * len(tensors)),
    "no NumPy header": with_tensors(lambda tensors: [tensor[128:] for tensor in tensors]),
    "cut in the header": with_tensors(lambda tensors: [tensor[:100] for tensor in tensors]),
    "a pickle": with_tensors(lambda tensors: [tensors[0].replace(b"|u1", b"|O ", 1)] * len(tensors)),
    "float32 array": with_tensors(lambda tensors: as_sent(np.ones(SIZE, "f4"))),
    "a matrix": with_tensors(lambda tensors: as_sent(np.ones((2, 9), "u1"))),
    "a megabyte of zeros": with_payload_of(lambda payload: bytes(10**6)),
    "noise": with_payload_of(lambda payload: np.random.default_rng(1).bytes(90)),
    "sealed noise": with_payload_of(lambda payload: sealed(payload[:24] + np.random.default_rng(2).bytes(50))),
    "empty payload": with_payload_of(lambda payload: b""),
    "cut payload": with_payload_of(lambda payload: sealed(payload[:-9])),
    "flipped bit": with_payload_of(lambda payload: bytes([*payload[:-6], payload[-6] ^ 1, *payload[-5:]])),
    "another client": with_payload_of(resent(client=1)),
    "a stranger": with_payload_of(resent(client=10**6)),
    "a round later": with_payload_of(resent(server_round=1)),
    "an old round": again,
    "one entry more": with_payload_of(of_size(SIZE + 1)),
    "one entry": with_payload_of(of_size(1)),
    "NaN": with_payload_of(value(math.nan)),
    "inf": with_payload_of(value(math.inf)),
    "huge": with_payload_of(value(3e38)),
    "absurd count": with_payload_of(forged(12, b"\xff\xff\xff\xff")),
    "another version": with_payload_of(forged(4, b"\2")),
    "unknown coding": with_payload_of(forged(5, b"\x09")),
    "an exception": failing("no\n" * 10**5),
    "no metrics": lambda reply, clients: replace(reply, metrics={}),
}


@cache
def attacks_on(message: str, needs: Any) -> tuple[Attack, ...]:
    """All attacks on the answer to one message, for a method with these needs."""
    lies = [(repr(lie)[:12] if lie is not MISSING else "missing", lie) for lie in LIES]
    if message == FIT:
        strict = ["loss", "work_steps", *sorted(needs.reports)]
        names = [*strict, "compute_s", "upload_bytes", "upload_s", "unknown"]
        found = [(f"{name} {kind}", with_metric(name, lie), name in strict) for name in names for kind, lie in lies]
        # The server uses the number of examples of the enrolment.
        found += [(f"examples {kind}", with_field("examples", lie), False) for kind, lie in lies]
        found += [(name, change, True) for name, change in TENSORS.items()]
    elif message == CALIBRATE:
        wrong = ("no array", "an array more", "empty arrays", "no NumPy header", "a matrix", "an exception")
        found = [(name, TENSORS[name], False) for name in wrong]
        for number in (math.nan, math.inf, -math.inf, 1e38):
            array = np.full(STATISTICS, number, np.float32)
            found.append((f"{number}", with_tensors(lambda _, array=array: as_sent(array)), False))
    elif message == EVALUATE:
        found = [
            (f"{name} {kind}", with_field(name, lie), False) for name in ("loss", "examples") for kind, lie in lies
        ]
        found += [(f"accuracy {kind}", with_metric("accuracy", lie), False) for kind, lie in lies]
        found += [("an exception", failing("no"), False)]
    else:
        names = ("client", "examples", *(("label_counts",) if needs.label_counts else ()))
        found = [
            (f"{name} {kind}", with_metric(name, lie), name != "label_counts") for name in names for kind, lie in lies
        ]
        found += [("another client's id", with_metric("client", LIAR - 1), False)]
        found += [("an exception", failing("no"), True)]
    return tuple(Attack(f"{message}: {name}", message, change, refused) for name, change, refused in found)
