"""Scripted message attacks: one of four clients answers a message with nonsense, for every method.

A `Setup` is a method with some settings, and an `Attack` changes one kind of answer. `carry_out` runs both together. It
checks that nothing crashes, that no other client counts as failed, and that the server aggregates no impossible values.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from fedsel_app.config import CompressionConfig, ConfigError
from fedsel_app.messages.instructions import CalibrateInstruction
from fedsel_app.messages.scalars import Report
from strategies import STRATEGIES
from strategies.base import SelectionStrategy
from strategies.round.federation import ALL, Answer, Answers, Message, Reply, Until
from strategies.testing.fake_federation import FakeClients, FakeFederation
from tests.support.contexts import context_of
from tests.support.rounds import run_rounds
from tests.support.scripted_lies import CALIBRATE, ENROL, EVALUATE, FIT, LIAR, SIZE, STATISTICS, Attack, attacks_on
from tests.support.stubs import as_sent

CLIENTS, ROUNDS = 4, 2
MOST_S = 5.0
"""Largest processor time of a run of four clients."""
OWN: Mapping[str, Mapping[str, Any]] = {
    "fedcor": {"warmup": 1, "first_steps": 2, "steps": 1},
    "fedcvr-bolt": {"warmup_rounds": 1, "landmarks": 4},
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
    "calibration": Setup(STRATEGIES["random"], {"calibration_clients": CLIENTS}, (CALIBRATE,), buffers=STATISTICS),
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
