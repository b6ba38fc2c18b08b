"""What the server remembers from round to round beside the model, and the one way from replies to the next model."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.common import FitRes
from numpy.typing import NDArray

from fedsel_app.wire.codec import Update
from strategies.aggregation.ef21 import Estimates
from strategies.aggregation.privacy import Privacy, refuse_statistics
from strategies.aggregation.robust import combine
from strategies.aggregation.server_optimizer import ServerOptimizer, aggregation_weights
from strategies.aggregation.server_solver import ServerSolver
from strategies.checkpoint import Stateful, gather, scatter
from strategies.roster import Floats, Ints, Selection
from strategies.round.replies import Replies, collect
from strategies.run_context import RunContext


@dataclass(frozen=True)
class Step:
    """What a round's replies come to.

    Attributes
    ----------
    parameters : float32 (N,), the next global model; the old one where nothing came back
    updates : the clients' updates, under ef21 as they are now estimated
    weights : float64 (r,), what each update weighs in the aggregate
    aggregate : float64 (N,), what `aggregation` makes of the updates; None where nothing came back
    record : entries of the round's row
    """

    parameters: NDArray[np.float32]
    updates: tuple[Update, ...]
    weights: Floats
    aggregate: Floats | None
    record: dict[str, Any] = field(default_factory=dict)


class ServerState:
    """The server's optimiser, its part of the local solver, and under ef21 its estimates of the clients' updates.

    `reports` are the numbers that every reply must bring: those the method asks for, and the solver's.
    """

    def __init__(self, context: RunContext, reports: frozenset[str]) -> None:
        self._context = context
        self.optimizer = ServerOptimizer(context.initial.size, context.server_optimizer)
        self.solver = ServerSolver(context.initial.size, context.run.clients, context.training)
        self.estimates = Estimates() if context.compression.ef21 else None
        refuse_statistics(context.privacy, context.buffers.size)
        self.privacy = Privacy(context.privacy) if context.privacy.dp_clip_norm else None
        self.reports = reports | self.solver.reports

    def collect(self, answered: Mapping[int, FitRes], asked: Ints, server_round: int) -> Replies:
        """Decode and check what the `asked` clients sent; the links learn of it."""
        replies = collect(
            answered,
            asked,
            server_round,
            self._context.initial.size,
            self.reports,
            seed=self._context.run.seed,
            payloads=self.solver.payloads,
            max_norm=0.0 if self.privacy else self._context.aggregation.max_update_norm,
        )
        for client, work_steps in zip(replies.clients.tolist(), replies.work_steps.tolist(), strict=True):
            self._context.links.learn(client, work_steps, answered[client].metrics)
        return replies

    def step(self, parameters: NDArray[np.float32], selection: Selection, replies: Replies, examples: Ints) -> Step:
        """Weigh, aggregate and step; what is remembered moves on. `examples` are those of all K clients."""
        came, updates = replies.clients, replies.updates
        if self.estimates is not None:
            updates = self.estimates.take(came, updates, replies.failed)
        place = np.searchsorted(selection.clients, came)
        weights = aggregation_weights(
            self._context.aggregation.weighting,
            selection.scores[place],
            examples[came].astype(np.float64),
            None if selection.weights is None else selection.weights[place],
            normalise=selection.normalise,
        )
        weights = self.solver.weights(weights, replies.reports)
        if not came.size:
            return Step(parameters, updates, weights, None)
        record = {}
        if self.privacy is not None:
            aggregate, weights = self.privacy.protect(updates)
            record["epsilon"] = self.privacy.epsilon()
        else:
            aggregate, weights = combine(updates, weights, self._context.aggregation)
        step = self.solver.step(aggregate, updates, replies.controls)
        return Step(self.optimizer.step(parameters, step), updates, weights, aggregate, record)

    def preview_step(
        self, parameters: NDArray[np.float32], selection: Selection, replies: Replies, examples: Ints
    ) -> Step:
        """What `step` would return, and nothing moves on."""
        trial = copy.copy(self)
        trial.optimizer, trial.solver = copy.deepcopy(self.optimizer), copy.deepcopy(self.solver)
        trial.estimates = self.estimates.copy() if self.estimates is not None else None
        return trial.step(parameters, selection, replies, examples)

    def state(self) -> dict[str, NDArray[Any]]:
        """What `load_state` needs to go on identically."""
        return gather(self._parts())

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""
        scatter(state, self._parts())

    def _parts(self) -> dict[str, Stateful]:
        parts: dict[str, Stateful | None] = {"optimizer": self.optimizer, "solver": self.solver}
        parts |= {"estimates": self.estimates, "privacy": self.privacy}
        return {name: part for name, part in parts.items() if part is not None}
