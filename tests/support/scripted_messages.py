"""Scripted message attacks: one of four clients answers a message with nonsense, for every method.

A `Setup` is a method with some settings, and an `Attack` changes one kind of answer. `carry_out` runs both together. It
checks that nothing crashes, that no other client counts as failed, and that the server aggregates no impossible values.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from flwr.common import FitRes, ndarrays_to_parameters

from fedsel_app.config import CompressionConfig, ConfigError
from fedsel_app.messages.instructions import CalibrateInstruction, read_instruction
from fedsel_app.messages.scalars import Report
from strategies import STRATEGIES
from strategies.base import SelectionStrategy
from strategies.testing.fake_federation import FakeFederation
from tests.support.contexts import context_of
from tests.support.proxies import OK, FederationProxy, manager_of
from tests.support.rounds import run_by_flower
from tests.support.scripted_lies import CALIBRATE, ENROL, EVALUATE, FIT, LIAR, SIZE, STATISTICS, Attack, attacks_on

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


@dataclass(eq=False)
class Node(FederationProxy):
    """Node of the federation; its answers go through `attack` if it is the liar."""

    attack: Attack | None = None
    fired: int = 0
    payloads: int = 1
    first: FitRes | None = None
    second: list[tuple[FederationProxy, FitRes]] = field(default_factory=list)
    """Replies that it sends after its first in a round."""

    def get_properties(self, ins, timeout, group_id):
        return self._say(ENROL, super().get_properties(ins, timeout, group_id))

    def evaluate(self, ins, timeout, group_id):
        return self._say(EVALUATE, super().evaluate(ins, timeout, group_id))

    def fit(self, ins, timeout, group_id):
        if isinstance(read_instruction(ins.config, "train"), CalibrateInstruction):
            statistics = ndarrays_to_parameters([np.ones(STATISTICS, np.float32)])
            return self._say(CALIBRATE, FitRes(OK, statistics, 1, {}))
        reply = super().fit(ins, timeout, group_id)
        reply.metrics |= {report.value: 1.0 for report in Report}
        reply.parameters.tensors *= self.payloads
        self.first = self.first or reply
        return self._say(FIT, reply)

    def _say(self, message: str, answer: Any) -> Any:
        if self.attack is None or self.attack.message != message:
            return answer
        self.fired += 1
        lie = self.attack.change(answer, self)
        if isinstance(lie, Exception):
            raise lie
        return lie


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


def run(setup: Setup, attack: Attack | None) -> tuple[Node, list[dict[str, Any]], Any]:
    """Run with the attack. Returns the liar, the rows and the final model."""
    strategy = setup.strategy()
    federation = FakeFederation(strategy)
    nodes = [Node(federation, client, f"node {client}", payloads=setup.payloads) for client in range(CLIENTS)]
    nodes[LIAR].attack = attack
    aggregate = strategy.aggregate_fit
    strategy.aggregate_fit = lambda number, results, failures: aggregate(
        number, [*results, *nodes[LIAR].second], failures
    )
    rows, model = run_by_flower(strategy, manager_of(nodes), ROUNDS)
    return nodes[LIAR], rows, model[0]


@cache
def honest_norm(name: str) -> float:
    """Norm of the final model of the same run without a lie."""
    return float(np.linalg.norm(run(SETUPS[name], None)[2]))


def carry_out(name: str, attack: Attack) -> None:
    """Run one attack. Raises AssertionError if the server does not withstand it."""
    began_s = time.process_time()
    liar, rows, model = run(SETUPS[name], attack)
    assert time.process_time() - began_s < MOST_S
    assert liar.fired
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
