"""Server state beside the model, and the step from a round's replies to the next global model."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import TrainingConfig
from fedsel_app.exact_sums import weighted_sum
from fedsel_app.messages.scalars import Report
from fedsel_app.solvers import EQUATIONS, Received, Weights
from fedsel_app.wire.codec import Update
from strategies.aggregation.robust import Combined, EntryBounds, combine
from strategies.aggregation.server_optimizer import ServerOptimizer, aggregation_weights
from strategies.aggregation.staleness import stale_step, staleness_weights
from strategies.checkpoint import Composed, Saved, Stateful, matching
from strategies.roster import Floats, Ints, Selection
from strategies.round.common_entries import CommonEntries
from strategies.round.federation import SentModel
from strategies.round.replies.training import Replies
from strategies.run_context import RunContext

if TYPE_CHECKING:
    from strategies.aggregation.privacy import Privacy


class Estimates:
    """EF21 estimates g_i of the clients' updates: dense float32 (N,), bit for bit equal to the clients' own.

    The clients' side is in `clients.error_feedback`. A client sends the change of its estimate. After a
    failed reply the two are no longer equal. Then the server drops its estimate, and the next instruction tells the
    client to start again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._of: dict[int, NDArray[np.float32]] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._of

    def update(self, clients: Ints, changes: Sequence[Update], failed: Ints) -> tuple[Update, ...]:
        """Add the `changes`, and drop the estimates of `failed`. Returns the clients' estimated updates, dense."""
        # A new dict, so that a shallow copy of this object keeps the old estimates.
        self._of = dict(self._of)
        for client, change in zip(clients.tolist(), changes, strict=True):
            if client in self._of:
                places = slice(None) if change.indices is None else change.indices
                self._of[client] = self._of[client].copy()
                self._of[client][places] += change.values
            else:
                self._of[client] = change.dense()
        for client in failed.tolist():
            self._of.pop(client, None)
        return tuple(Update(self._size, None, self._of[client]) for client in clients.tolist())

    def state(self) -> dict[str, NDArray[Any]]:
        """The estimates by client."""
        return {str(client): estimate for client, estimate in self._of.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned."""
        like = np.zeros(self._size, np.float32)
        self._of = {int(client): matching(state, client, like) for client in state}


@dataclass(frozen=True)
class Step:
    """Server step: the next global model and its derivation from the replies.

    Attributes
    ----------
    parameters : float32 (N,), the next global model; the old one if no update was aggregated
    updates : the clients' updates that were combined; with ef21 the server's estimates of them
    weights : float64 (r,), of each update in the aggregate
    taken : float64 (r,), share of each update that the setting `aggregation` took
    aggregate : float64 (N,), the updates combined by the setting `aggregation`; None without updates
    """

    parameters: NDArray[np.float32]
    updates: tuple[Update, ...]
    weights: Floats
    taken: Floats
    aggregate: Floats | None


class ServerSolver(Saved):
    """The server's part of the setting `solver`.

    Attributes
    ----------
    reports : numbers that clients must report for the solver
    payloads : number of wire payloads in each reply
    """

    state_fields = ("_mean",)

    def __init__(self, size: int, clients: int, training: TrainingConfig) -> None:
        self._traits, self._equations = training.traits, EQUATIONS[training.solver]
        self._clients, self._pull = clients, training.proximal
        self._mean = np.zeros(size if self._traits.keeps_state else 0)
        self.reports = frozenset(Report(name) for name in self._traits.reports)
        self.payloads = 1 + self._traits.control_variates

    def with_control(self, model: SentModel) -> SentModel:
        """The model as it is sent to the cohort: followed by the control variate, if the solver has one."""
        if not self._traits.control_variates:
            return model
        return SentModel((*model.arrays, self._mean.astype(np.float32)))

    def weights(self, weights: Weights, reports: Mapping[str, Floats]) -> Weights:
        """The weights of the updates, given the numbers that the clients reported with them."""
        return self._equations.weights(weights, reports)

    def step(self, aggregate: Floats, updates: Sequence[Update], controls: Sequence[Update]) -> Floats:
        """The update to apply, float64 (N,), from the combined `updates`; the kept mean is updated."""
        if (place := self._equations.summed) is None:
            return aggregate
        summed = (updates, controls)[place]
        return self.step_of_sum(aggregate, weighted_sum(summed, [1.0] * len(summed)))

    def step_of_sum(self, aggregate: Floats, total: Floats | None = None) -> Floats:
        """As `step`, from the plain sum of the vectors that the solver's `summed` names, if it names any."""
        if total is None:
            return aggregate
        return self._equations.step(self._mean, aggregate, Received(total, self._clients, self._pull))

    def terms(self, vectors: Sequence[Update], weight: float) -> list[tuple[Update, float]]:
        """A client's terms in the sums that `step_of_sum` and the aggregate need, from its update and the others."""
        return self._equations.terms(vectors, weight)


def _privacy(context: RunContext) -> "Privacy | None":
    if not context.privacy.dp_clip_norm:
        return None
    from strategies.aggregation.privacy import Privacy, refuse_statistics

    refuse_statistics(context.privacy, context.buffers.size)
    return Privacy(context.privacy, context.recorder.releases)


class ServerState(Composed):
    """State of the server: optimiser, its part of the solver, estimates (ef21), common entries, bounds of entries."""

    def __init__(self, context: RunContext) -> None:
        self._context, size = context, context.initial.size
        self._waits = context.waiting.waiting != "synchronous"
        self.optimizer = ServerOptimizer(size, context.server_optimizer)
        self.solver = ServerSolver(size, context.run.clients, context.training)
        self.estimates = Estimates(size) if context.compression.ef21 else None
        malicious = context.aggregation.entry_malicious if context.aggregation.traits.robust else 0
        self.entry_bounds = EntryBounds(size, malicious) if malicious else None
        self.privacy = _privacy(context)
        self.common = CommonEntries(context) if context.compression.traits.common else None

    def step(self, parameters: NDArray[np.float32], selection: Selection, replies: Replies) -> Step:
        """Weigh, aggregate and step the optimiser; the state changes."""
        step = self._step(parameters, selection, replies)
        if self.common is not None:
            self.common.learn(step.aggregate, replies.exponents, replies.buffers_counts)
        return step

    def _step(self, parameters: NDArray[np.float32], selection: Selection, replies: Replies) -> Step:
        clients, updates = replies.clients, replies.updates
        if self.estimates is not None:
            updates = self.estimates.update(clients, updates, replies.failed)
        weights = self.weights(selection, clients, replies.examples, replies.reports)
        if self._waits:
            late = staleness_weights(replies.staleness, self._context.waiting)
            weights = weights._replace(own=weights.own * late)
        if not clients.size:
            return Step(parameters, updates, weights.own, np.zeros(0), None)
        sent = weights if self.common is None else self.common.in_updates(weights)
        if replies.total is not None:
            aggregate, *plain = (each.total() for each in replies.total.sums)
            aggregate /= sent.divisor
            moved = self.optimizer.step(parameters, self.solver.step_of_sum(aggregate, *plain))
            return Step(moved, (), weights.own / weights.divisor, np.ones(clients.size), aggregate)
        if self.privacy is not None:
            combined = Combined(updates, *self.privacy.protect(updates), np.ones(clients.size))
        else:
            bound = None if self.entry_bounds is None else partial(self.entry_bounds.bound, clients)
            combined = combine(updates, sent.own, self._context.aggregation, bound, sent.divisor)
        step = self.solver.step(combined.aggregate, combined.updates, replies.controls)
        if self._context.waiting.waiting == "asynchronous":
            step = stale_step(step, combined.weights, replies.staleness, replies.starts, parameters)
        moved = self.optimizer.step(parameters, step)
        return Step(moved, combined.updates, combined.weights, combined.taken, combined.aggregate)

    def weights(self, selection: Selection, clients: Ints, examples: Ints, reports: Mapping[str, Floats]) -> Weights:
        """The weights of the updates of some `clients` of the selection, given their examples and reports (r,).

        Those of `Weights.own` depend on no other client, unless all are 0.
        """
        place = np.searchsorted(selection.clients, clients)
        weights = aggregation_weights(
            self._context.aggregation.weighting,
            selection.scores[place],
            examples.astype(np.float64),
            None if selection.weights is None else selection.weights[place],
            normalise=selection.normalise,
        )
        return self.solver.weights(weights, reports)

    @property
    def epsilon(self) -> float | None:
        """Privacy loss epsilon so far; None without differential privacy."""
        return None if self.privacy is None else self.privacy.epsilon()

    def preview_step(self, parameters: NDArray[np.float32], selection: Selection, replies: Replies) -> Step:
        """The step that `step` would return; the state does not change."""
        preview = copy.copy(self)
        preview.optimizer, preview.solver = copy.deepcopy(self.optimizer), copy.deepcopy(self.solver)
        preview.estimates, preview.entry_bounds = copy.copy(self.estimates), copy.deepcopy(self.entry_bounds)
        return preview._step(parameters, selection, replies)

    def parts(self) -> dict[str, Stateful]:
        """Those that this run has."""
        parts: dict[str, Stateful | None] = {"optimizer": self.optimizer, "solver": self.solver}
        parts |= {"estimates": self.estimates, "privacy": self.privacy, "entry-bounds": self.entry_bounds}
        parts |= {"common": self.common}
        return {name: part for name, part in parts.items() if part is not None}
