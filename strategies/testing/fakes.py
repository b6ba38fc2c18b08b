"""Fakes for tests of methods: a run context and a round's outcome without data or model, and a federation of clients.

The losses, links and updates of its clients follow from a seed. It runs rounds as `strategies.base` does, without
messages.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import NetworkConfig, Settings, Value, read_groups
from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.network.links import SimulatedLinks
from fedsel_app.records.run_folder import UnkeptRecords
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.codec import Update
from strategies.base import SelectionStrategy
from strategies.roster import Floats, Ints, Outcome, RoundInfo, Selection
from strategies.run_context import Evaluation, RunContext

STEADY = NetworkConfig(uplink_min_bits_per_s=3e6, uplink_max_bits_per_s=3e6, step_min_s=0.3, step_max_s=0.3)
"""Links of 3 Mb/s and 0.3 s a step for every client in every round."""


def make_context(
    method: Settings,
    *,
    clients: int = 6,
    size: int = 12,
    classes: int = 2,
    rounds: int = 10,
    cohort: int = 2,
    **settings: Value | Settings,
) -> RunContext:
    """Context of a strategy without data, model or messages.

    The model has two layers. The second has the last `size` // 2 entries (weights, then `classes` biases). `settings`
    are groups by their names in `SharedSettings`, or single settings by their fields' names.
    """
    groups = {name: group for name, group in settings.items() if isinstance(group, Settings)}
    single = {name.replace("_", "-"): value for name, value in settings.items() if not isinstance(value, Settings)}
    values = {"clients": clients, "cohort": cohort, "rounds": rounds} | single
    return RunContext(
        **read_groups(values) | groups,
        method=method,
        initial=np.zeros(size, np.float32),
        buffers=np.zeros(0, np.float32),
        layers=(LayerSlice("body", 0, size - size // 2), LayerSlice("head", size - size // 2, size)),
        classes=classes,
        links=SimulatedLinks(STEADY, clients, seed=0),
        evaluate=lambda parameters, buffers: Evaluation(0.0, 0.0),
        recorder=UnkeptRecords(),
    )


def dense(values: Sequence[float] | Floats) -> Update:
    """Dense update of these values."""
    return Update(len(values), None, np.asarray(values, np.float32))


def outcome(
    round_info: RoundInfo,
    clients: Sequence[int],
    updates: Sequence[Update],
    *,
    local_steps: Sequence[int] | Ints | None = None,
    losses: Sequence[float] | Floats | None = None,
    reports: Mapping[str, Floats] | None = None,
    failed: Sequence[int] = (),
    selection: Selection | None = None,
    parameters: NDArray[np.float32] | None = None,
) -> Outcome:
    """Outcome of a round with `updates` of `clients` (ascending), aggregated with equal weights.

    Without `selection`, these and the `failed` were selected. Without `parameters`, they are all 0. Without
    `local_steps` and `losses`, these are all 1.
    """
    selected = np.union1d(np.asarray(clients, np.int64), np.asarray(failed, np.int64))
    mean = np.mean([update.dense() for update in updates], axis=0, dtype=np.float64) if updates else None
    return Outcome(
        round_info=round_info,
        selection=selection or Selection(selected),
        parameters=np.zeros(0 if mean is None else mean.size, np.float32) if parameters is None else parameters,
        clients=np.asarray(clients, np.int64),
        updates=tuple(updates),
        norms=np.array([update.norm() for update in updates]),
        aggregate=None if mean is None else np.asarray(mean),
        local_steps=np.ones(len(clients), np.int64) if local_steps is None else np.asarray(local_steps, np.int64),
        losses=np.ones(len(clients)) if losses is None else np.asarray(losses, np.float64),
        reports=reports or {},
        failed=np.asarray(failed, np.int64),
    )


SEED = 7
"""Seed of the clients' data, losses, links and updates, in every federation."""

LOSSES: dict[str, Callable[[Floats], Floats]] = {
    "varied": lambda losses: losses,
    "equal": np.ones_like,
    "unknown": lambda losses: np.full_like(losses, np.nan),
    "mixed": lambda losses: np.choose(np.arange(losses.size) % 5, [losses, np.nan, np.inf, 1e308, 0.0]),
}
"""Kind of losses -> change of the losses, float64 (K,) by identity. Finite losses stay finite."""

UPDATES: dict[str, Callable[[Floats, int], Update]] = {
    "dense": lambda values, identity: dense(values),
    "mixed": lambda values, identity: _every(values, np.arange(0, values.size, 2)) if identity % 2 else dense(values),
    "zero": lambda values, identity: _every(0.0 * values, np.arange(1)) if identity % 2 else dense(0.0 * values),
    "identical": lambda values, identity: dense(np.full(values.size, 0.5)),
}
"""Kind of updates -> a client's update, from its values (N,) and its identity."""


def _every(values: Floats, places: Ints) -> Update:
    return Update(values.size, places.astype(np.uint32), values[places].astype(np.float32))


@lru_cache(maxsize=8192)
def _noise(number: int, identity: int, size: int) -> Floats:
    """Noise of a client's training in a round, float64 (N,), read-only: the same in every federation."""
    noise = stream(SEED, Purpose.TRAIN, number, identity).standard_normal(size)
    noise.setflags(write=False)
    return noise


class FakeFederation:
    """Federation of fake clients of a method; their data, losses and updates follow from `SEED`, identity and round.

    Parameters
    ----------
    method : method that is built for one client per entry of `identities`
    identities : the client behind each partition id, int64 (K,), a permutation; None: the ids themselves
    losses, updates : keys of `LOSSES` and `UPDATES`
    """

    def __init__(
        self,
        method: SelectionStrategy,
        *,
        identities: Ints | None = None,
        losses: str = "varied",
        updates: str = "dense",
    ) -> None:
        run = method.context.run
        self.method, self.roster, self.cohort = method, method.whole_roster, run.cohort
        self.needs = method.needs(method.config)
        self._losses, self._updates = LOSSES[losses], UPDATES[updates]
        self._identities = np.arange(run.clients) if identities is None else identities
        rng = stream(SEED, Purpose.DATA)
        shares = rng.dirichlet(np.full(method.context.classes, 0.4), run.clients)
        counts = np.ceil(shares * rng.integers(20, 200, (run.clients, 1))).astype(np.int64)
        self._level = rng.uniform(0.5, 3.0, run.clients)
        self._drift = rng.standard_normal((run.clients, method.context.initial.size))
        self._step_s = rng.uniform(0.1, 0.5, run.clients)
        self.label_counts = counts[self._identities]
        self.examples = self.label_counts.sum(axis=1)
        self.local_steps = np.full(run.clients, 50)

    def losses(self, number: int) -> Floats:
        """Losses of all clients for the model of round `number`, float64 (K,). Every report has these values too."""
        noise = stream(SEED, Purpose.PROBE, number).uniform(0.5, 1.5, self._identities.size)
        return self._losses(self._level * 0.99**number * noise)[self._identities]

    def metric(self, number: int) -> Floats:
        """Each needed metric of all clients, float64 (K,), in [0, 1]: it falls with the loss."""
        return 1.0 / (1.0 + np.abs(self.losses(number)))

    def update(self, number: int, client: int) -> Update:
        """Update that `client` sends in round `number`."""
        identity = int(self._identities[client])
        drift = self._drift[identity]
        noise = _noise(number, identity, drift.size)
        return self._updates(0.1 * (drift + noise) * 0.99**number, identity)

    def observe(self, number: int, available: Iterable[int] | None = None) -> int:
        """Fill the roster as a round does, with all clients or the `available` ones. Returns the number to select."""
        roster, needs = self.roster, self.needs
        present = list(range(self._identities.size) if available is None else available)
        roster.available[:] = False
        roster.available[present] = True
        roster.examples[present] = self.examples[present]
        roster.local_steps[present] = self.local_steps[present]
        if needs.label_counts:
            if not roster.label_counts.size:
                roster.label_counts = np.zeros_like(self.label_counts)
            roster.label_counts[present] = self.label_counts[present]
        if needs.links:
            uplinks = stream(SEED, Purpose.NETWORK, number).uniform(1e6, 5e6, self._identities.size)
            roster.uplink_bits_per_s[:] = uplinks[self._identities]
            roster.step_s[:] = self._step_s[self._identities]
        count = min(self.cohort, len(present))
        roster.losses[:] = np.nan
        if needs.probed_numbers:
            probed = self.candidates(number, count)
            roster.losses[probed] = self.losses(number)[probed]
            for name in needs.metrics:
                roster.metric(name)[:] = np.nan
                roster.metric(name)[probed] = self.metric(number)[probed]
        return count

    def candidates(self, number: int, count: int) -> Ints:
        """Clients whose loss the method asks for."""
        rng = stream(self.method.context.run.seed, Purpose.CANDIDATES, number)
        return self.method.candidates(self.method.roster, self.round_info(number), count, rng)

    def select(self, number: int, count: int) -> Selection:
        """Selection of the method."""
        rng = stream(self.method.context.run.seed, Purpose.SELECT, number)
        return self.method.select(self.method.roster, self.round_info(number), count, rng)

    def finish(self, number: int, selection: Selection, failed: Iterable[int] = ()) -> None:
        """Let the selected clients train, except the `failed`, and let the method learn from the round."""
        self.method.learn(self.train(number, selection, failed))

    def train(self, number: int, selection: Selection, failed: Iterable[int] = ()) -> Outcome:
        """Let the selected clients train, except the `failed`, and update the roster. Returns the round's outcome."""
        losses, selected = self.losses(number), selection.clients
        missing = np.isin(selected, list(failed))
        returned, missed = selected[~missing], selected[missing]
        metrics = dict.fromkeys(self.needs.fit_metrics, self.metric(number)[returned])
        self.roster.record_round(
            *(number, selected, returned, losses[returned], np.ones(returned.size)), failed=missed, fit_metrics=metrics
        )
        return outcome(
            self.round_info(number),
            returned.tolist(),
            [self.update(number, client) for client in returned.tolist()],
            local_steps=selection.steps(self.roster, self.method.context.training)[~missing],
            losses=losses[returned],
            reports=dict.fromkeys(sorted(self.needs.reports), losses[returned]),
            failed=missed.tolist(),
            selection=selection,
            parameters=np.zeros(self._drift.shape[1], np.float32),
        )

    def round_info(self, number: int) -> RoundInfo:
        """Round `number` of the run."""
        return RoundInfo(number, self.method.context.run.rounds)
