"""Fake federation: clients that drive a method; their losses, links and updates follow from the seed.

`FakeFederation` plays the round as `strategies.base` does, without messages; a `FakeClientProxy` is
one of its clients to Flower.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from flwr.common import (
    Code,
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    ReconnectIns,
    Scalar,
    Status,
    ndarrays_to_parameters,
)
from flwr.server.client_proxy import ClientProxy
from numpy.typing import NDArray

from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update, encode
from strategies.base import SelectionStrategy
from strategies.roster import Floats, Ints, RoundInfo, Selection
from strategies.testing.rehearsal import dense, outcome

Number = TypeVar("Number", bound=np.generic)

LOSSES: dict[str, Callable[[Floats], Floats]] = {
    "varied": lambda losses: losses,
    "equal": np.ones_like,
    "zero": np.zeros_like,
    "huge": lambda losses: losses * 1e307,
    "unknown": lambda losses: np.full_like(losses, np.nan),
    "infinite": lambda losses: np.full_like(losses, np.inf),
    "mixed": lambda losses: np.choose(np.arange(losses.size) % 5, [losses, np.nan, np.inf, 1e308, 0.0]),
}
"""What becomes of the losses (K,) by identity, in a world of that name. Finite ones stay finite."""

UPDATES: dict[str, Callable[[Floats, int], Update]] = {
    "dense": lambda values, identity: dense(values),
    "sparse": lambda values, identity: _every(values, np.arange(identity % 3, values.size, 3)),
    "mixed": lambda values, identity: _every(values, np.arange(0, values.size, 2)) if identity % 2 else dense(values),
    "zero": lambda values, identity: _every(0.0 * values, np.arange(1)) if identity % 2 else dense(0.0 * values),
    "identical": lambda values, identity: dense(np.full(values.size, 0.5)),
}
"""What becomes of a client's update (N,), in a world of that name."""


def _every(values: Floats, places: Ints) -> Update:
    return Update(values.size, places.astype(np.uint32), values[places].astype(np.float32))


@lru_cache(maxsize=8192)
def _noise(seed: int, number: int, identity: int, size: int) -> Floats:
    """What training adds to a client's drift in a round, float64 (N,): the same in every world of the seed."""
    return _fixed(stream(seed, Purpose.TRAIN, number, identity).standard_normal(size))


@lru_cache(maxsize=1024)
def _uniform(seed: int, purpose: Purpose, number: int, low: float, high: float, size: int) -> Floats:
    """A number for everybody in a round, float64 (K,)."""
    return _fixed(stream(seed, purpose, number).uniform(low, high, size))


class Population(NamedTuple):
    """What clients are, by identity: label counts (K, classes), and float64 (K,) or, for the drift, (K, N)."""

    label_counts: Ints
    level: Floats
    drift: Floats
    step_s: Floats


@lru_cache(maxsize=64)
def _population(seed: int, clients: int, size: int, classes: int) -> Population:
    rng = stream(seed, Purpose.DATA)
    shares = rng.dirichlet(np.full(classes, 0.4), clients)
    return Population(
        label_counts=_fixed(np.ceil(shares * rng.integers(20, 200, (clients, 1))).astype(np.int64)),
        level=_fixed(rng.uniform(0.5, 3.0, clients)),
        drift=_fixed(rng.standard_normal((clients, size))),
        step_s=_fixed(rng.uniform(0.1, 0.5, clients)),
    )


def _fixed(array: NDArray[Number]) -> NDArray[Number]:
    array.setflags(write=False)
    return array


class FakeFederation:
    """Clients around a method. What they are and do follows from the seed, their identity and the round.

    Parameters
    ----------
    method : built for as many clients as there are `identities`
    identities : who sits behind each partition id, int64 (K,), a permutation; None: the ids themselves
    losses, updates : of `LOSSES` and `UPDATES`
    generous : the roster also holds what the method does not say that it needs
    """

    def __init__(
        self,
        method: SelectionStrategy,
        *,
        identities: Ints | None = None,
        losses: str = "varied",
        updates: str = "dense",
        seed: int = 7,
        generous: bool = False,
    ) -> None:
        run = method.context.run
        self.method, self.roster, self.cohort = method, method.roster, run.cohort
        self.needs = method.needs(method.context.method)
        self._losses, self._updates, self._seed, self._generous = LOSSES[losses], UPDATES[updates], seed, generous
        self._who = np.arange(run.clients) if identities is None else identities
        self._clients = _population(seed, run.clients, method.context.initial.size, method.context.classes)
        self.label_counts = self._clients.label_counts[self._who]

    def losses(self, number: int) -> Floats:
        """Everybody's loss of the model of round `number`, float64 (K,)."""
        noise = _uniform(self._seed, Purpose.PROBE, number, 0.5, 1.5, self._who.size)
        return self._losses(self._clients.level * 0.99**number * noise)[self._who]

    def update(self, number: int, client: int) -> Update:
        """What `client` sends in round `number`."""
        who = int(self._who[client])
        drift = self._clients.drift[who]
        noise = _noise(self._seed, number, who, drift.size)
        return self._updates(0.1 * (drift + noise) * 0.99**number, who)

    def observe(self, number: int, available: Iterable[int] | None = None) -> int:
        """Fill the roster as a round does, with everybody or those `available`; how many to select."""
        roster, needs = self.roster, self.needs
        present = list(range(self._who.size) if available is None else available)
        roster.available[:] = False
        roster.available[present] = True
        roster.examples[present] = self.label_counts[present].sum(axis=1)
        roster.local_steps[present] = 50
        if needs.label_counts or self._generous:
            if not roster.label_counts.size:
                roster.label_counts = np.zeros_like(self.label_counts)
            roster.label_counts[present] = self.label_counts[present]
        if needs.links or self._generous:
            uplinks = _uniform(self._seed, Purpose.NETWORK, number, 1e6, 5e6, self._who.size)
            roster.uplink_bits_per_s[:], roster.step_s[:] = uplinks[self._who], self._clients.step_s[self._who]
        count = min(self.cohort, len(present))
        roster.losses[:] = np.nan
        if needs.loss_probe or self._generous:
            probed = self.candidates(number, count) if needs.loss_probe else roster.ids
            roster.losses[probed] = self.losses(number)[probed]
        return count

    def candidates(self, number: int, count: int) -> Ints:
        """Whose loss the method wants to know."""
        rng = stream(self.method.context.run.seed, Purpose.CANDIDATES, number)
        return self.method.candidates(self.roster, self.round_info(number), count, rng)

    def select(self, number: int, count: int) -> Selection:
        """What the method decides."""
        rng = stream(self.method.context.run.seed, Purpose.SELECT, number)
        return self.method.select(self.roster, self.round_info(number), count, rng)

    def finish(self, number: int, selected: Ints, failed: Iterable[int] = ()) -> None:
        """Let `selected` train, all but the `failed`, and the method absorb it."""
        roster, losses = self.roster, self.losses(number)
        missing = np.isin(selected, list(failed))
        came, lost = selected[~missing], selected[missing]
        roster.selections[selected] += 1
        roster.last_selected[selected] = number
        roster.last_returned[came] = number
        roster.fit_losses[came] = losses[came]
        roster.failures[lost] += 1
        self.method.learn(
            outcome(
                self.round_info(number),
                came.tolist(),
                [self.update(number, client) for client in came.tolist()],
                losses=losses[came],
                reports=dict.fromkeys(sorted(self.needs.reports), losses[came]),
                failed=lost.tolist(),
                size=self._clients.drift.shape[1],
            )
        )

    def round_info(self, number: int) -> RoundInfo:
        """Round `number` of the run."""
        return RoundInfo(number, self.method.context.run.rounds)


@dataclass(eq=False)
class FakeClientProxy(ClientProxy):
    """Client `client` of a `world` as Flower's server sees it; `cid` is Flower's own id, which means nothing."""

    world: FakeFederation
    client: int
    cid: str

    def get_properties(self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None) -> GetPropertiesRes:
        """What it has."""
        counts = self.world.label_counts[self.client]
        told = {"client": self.client, "examples": int(counts.sum()), "steps": 50, "label-counts": counts.tobytes()}
        return GetPropertiesRes(Status(Code.OK, ""), told)

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """Its loss of the round's model."""
        loss = float(self.world.losses(int(ins.config["round"]))[self.client])
        return EvaluateRes(Status(Code.OK, ""), loss, 1, {})

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Its update and reports."""
        number = int(ins.config["round"])
        payload = encode(self.world.update(number, self.client), client=self.client, server_round=number)
        names = ["loss", "work-steps", *self.world.needs.reports]
        metrics: dict[str, Scalar] = dict.fromkeys(names, float(self.world.losses(number)[self.client]))
        return FitRes(Status(Code.OK, ""), ndarrays_to_parameters([np.frombuffer(payload, np.uint8)]), 1, metrics)

    def get_parameters(self, ins: GetParametersIns, timeout: float | None, group_id: int | None) -> GetParametersRes:
        """Nobody asks."""
        raise NotImplementedError

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Nobody asks."""
        raise NotImplementedError
