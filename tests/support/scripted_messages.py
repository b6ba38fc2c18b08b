"""Scripted message attacks: one of four clients answers a message with nonsense, for every method.

An `Attack` changes one kind of a client's valid answers. A `Setup` is a method with some settings. `carry_out` runs
both together. It checks that nothing crashes, that no other client counts as failed, and that the server aggregates no
impossible values.
"""

import math
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from fedsel_app.config import CompressionConfig, ConfigError
from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.messages.scalars import Report
from fedsel_app.wire.codec import decode, encode
from strategies import STRATEGIES
from strategies.base import SelectionStrategy
from strategies.round.federation import ALL, Answer, Answers, Message, NodeError, Reply, Until
from strategies.testing.fake_federation import FakeFederation
from strategies.testing.fakes import dense
from tests.support.contexts import context_of
from tests.support.fake_clients import FakeClients
from tests.support.payloads import sealed
from tests.support.rounds import run_rounds
from tests.support.stubs import as_sent, sent_payload, with_payload

LIAR, SIZE = 2, 24
"""The client that lies, and the entries of its model."""
STATISTICS = SIZE // 4
MISSING = object()
LIES = (MISSING, math.nan, math.inf, 1e308, 10**30, -1.0, True, b"\0\1", [1.0, 2.0], "x" * 5000)
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
    "empty arrays": with_tensors(lambda tensors: [b""] * len(tensors)),
    "no NumPy header": with_tensors(lambda tensors: [tensor[128:] for tensor in tensors]),
    "float32 array": with_tensors(lambda tensors: as_sent(np.ones(SIZE, "f4"))),
    "a megabyte of zeros": with_payload_of(lambda payload: bytes(10**6)),
    "sealed noise": with_payload_of(lambda payload: sealed(payload[:24] + np.random.default_rng(2).bytes(50))),
    "flipped bit": with_payload_of(lambda payload: bytes([*payload[:-6], payload[-6] ^ 1, *payload[-5:]])),
    "another client": with_payload_of(resent(client=1)),
    "a round later": with_payload_of(resent(server_round=1)),
    "an old round": again,
    "one entry more": with_payload_of(of_size(SIZE + 1)),
    "NaN": with_payload_of(value(math.nan)),
    "inf": with_payload_of(value(math.inf)),
    "huge": with_payload_of(value(3e38)),
    "another version": with_payload_of(forged(4, b"\2")),
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
        wrong = ("no array", "empty arrays", "no NumPy header", "float32 array", "an exception")
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


CLIENTS, ROUNDS = 4, 2
MOST_S = 5.0
"""Largest processor time of a run of four clients."""
OWN: Mapping[str, Mapping[str, Any]] = {
    "fedcor": {"warmup": 1, "first_steps": 2, "steps": 1},
    "fedcvr-bolt": {"warmup_rounds": 1},
    "power-of-choice": {"candidates": CLIENTS},
    "terraform": {"iterations": 1},
}
"""Settings of methods with which the second round uses the method's own rule and takes little time."""


class Attacked(FakeClients):
    """Fake clients of a setup; the answers of one of them go through `attack`.

    Attributes
    ----------
    first : the liar's first reply to a train message
    fired : number of answers that went through the attack
    """

    def __init__(self, federation: FakeFederation, payloads: int, attack: Attack | None) -> None:
        super().__init__(federation, range(CLIENTS))
        self._payloads, self._attack = payloads, attack
        self.first: Reply | None = None
        self.fired = 0

    def ask(self, messages: Sequence[Message], until: Until = ALL) -> Answers:
        """Every client's answer, or the lie."""
        answers = super().ask(messages, until)
        return {message.node: self._said(message, answers[message.node]) for message in messages}

    def _said(self, message: Message, reply: Answer) -> Answer:
        kind, liar = message.instruction.message_type, message.node == f"node-{LIAR}"
        if isinstance(message.instruction, CalibrateInstruction):
            kind, reply = CALIBRATE, Reply({}, as_sent(np.ones(STATISTICS, np.float32)), 1)
        elif kind == FIT:
            metrics = dict(reply.metrics) | {report.value: 1.0 for report in Report}
            reply = replace(reply, metrics=metrics, tensors=list(reply.tensors) * self._payloads, examples=1)
            if liar:
                self.first = self.first or reply
        if not liar or self._attack is None or self._attack.message != kind:
            return reply
        self.fired += 1
        return self._attack.change(reply, self)


@dataclass(frozen=True)
class Setup:
    """Setup of a run: method, settings, and the messages of its server other than enrolment and training."""

    method: type[SelectionStrategy]
    settings: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    payloads: int = 1
    buffers: int = 0

    def strategy(self) -> SelectionStrategy:
        """New instance of the method; without compression and with a test part if it needs these."""
        method = self.method.Config(**OWN.get(self.method.name, {}))
        shape = {"clients": CLIENTS, "cohort": CLIENTS, "rounds": ROUNDS, "size": SIZE, "classes": 3}
        values = shape | {"buffers": np.ones(self.buffers, np.float32)} | self.settings
        try:
            return self.method(context_of(method, **values))
        except ConfigError:
            values |= {"compression": CompressionConfig(compressor="none"), "holdout_fraction": 0.2}
            return self.method(context_of(method, **values))

    @property
    def attacks(self) -> Iterator[Attack]:
        """Attacks on all messages of the setup."""
        needs = self.method.needs(self.method.Config(**OWN.get(self.method.name, {})))
        probed = (EVALUATE,) if needs.loss_probe else ()
        return (attack for message in (ENROL, FIT, *probed, *self.more) for attack in attacks_on(message, needs))


SETUPS = {name: Setup(method) for name, method in STRATEGIES.items()} | {
    "power-of-choice": Setup(STRATEGIES["power-of-choice"], {"cohort": CLIENTS - 1}),
    "calibration": Setup(STRATEGIES["random"], {}, (CALIBRATE,), buffers=STATISTICS),
    "local tests": Setup(STRATEGIES["random"], {"client_eval": True, "holdout_fraction": 0.2}, (EVALUATE,)),
    "median": Setup(STRATEGIES["full"], {"aggregation": "median"}),
    "krum": Setup(STRATEGIES["full"], {"aggregation": "multi-krum"}),
    "ef21": Setup(STRATEGIES["full"], {"error_feedback_scheme": "ef21"}),
    "scaffold": Setup(STRATEGIES["full"], {"solver": "scaffold"}, payloads=2),
    "fednova": Setup(STRATEGIES["full"], {"solver": "fednova"}),
    "loss-clip": Setup(STRATEGIES["oort"], {"loss_clip": 3.0}),
}
SCRIPTS = [(name, attack) for name, setup in SETUPS.items() for attack in setup.attacks]


def run(setup: Setup, attack: Attack | None) -> tuple[Attacked, list[dict[str, Any]], Any]:
    """Run with the attack. Returns the clients, the rows and the final model."""
    strategy = setup.strategy()
    clients = Attacked(FakeFederation(strategy), setup.payloads, attack)
    rows, model = run_rounds(strategy, clients, ROUNDS)
    return clients, rows, model[0]


@cache
def honest_norm(name: str) -> float:
    """Norm of the final model of the same run without a lie."""
    return float(np.linalg.norm(run(SETUPS[name], None)[2]))


def carry_out(name: str, attack: Attack) -> None:
    """Run one attack. Raises AssertionError if the server does not withstand it."""
    began_s = time.process_time()
    clients, rows, model = run(SETUPS[name], attack)
    assert time.process_time() - began_s < MOST_S
    assert clients.fired
    assert np.isfinite(model).all()
    assert np.linalg.norm(model) <= 10.0 * honest_norm(name)
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))
    for row in rows:
        assert np.isfinite(row["weights"]).all()
        assert all(len(failure["reason"]) < 500 for failure in row["failures"])
        assert {failure["client"] for failure in row["failures"]} <= {LIAR}
        honest = set(row["selected"]) - {LIAR}
        assert honest <= set(row["aggregated"]), "an honest client was left out"
        assert not (attack.refused and LIAR in row["aggregated"]), "a lie was aggregated"
