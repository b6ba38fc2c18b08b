"""Local round: what every client does before and after its training, in fedsel's own app or in a user's app.

The steps are: recall the state, train, finish the solver's step, compress, encode, save the state, answer. The training
itself is a function; see `Train`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clients.error_feedback import Curvature, as_sent, restore_untaken, upload, weight_sent
from clients.state import LOCAL, Arrays, ClientHistory, StateStore, last_upload
from fedsel_app.config import CompressionConfig, TrainingConfig
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.models.layer_slice import LayerSlice
from fedsel_app.solvers import EQUATIONS, Steps
from fedsel_app.wire.codec import Update, bits_of_values, encode, refuse_unsendable, whole_bytes
from fedsel_app.wire.entries import exponent_in, of_entries
from fedsel_app.wire.ring import Multiples

if TYPE_CHECKING:
    from fedsel_app.exact_sums import CohortSum

Vector = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Result of a client's training, by fedsel's or a user's code."""

    parameters: Vector
    """Trained parameters, float32 (N,)."""
    loss: float
    """Mean training loss; NaN if unknown."""
    compute_s: float
    """Seconds of computing."""
    work_steps: float = 0.0
    """All computing, in local steps; 0 if the server counts the steps itself."""
    steps: int = 0
    """Local steps; only solvers with a state need them."""
    lr: float = 0.0
    """Learning rate of these steps."""
    statistics: Vector | None = None
    """BatchNorm statistics to send, float32 (B,)."""
    reports: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the instruction requested."""
    local: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Arrays of the model that stay with the client, by name."""
    curvature: Curvature | None = None
    """Function from the layers' shares of the last mask to the diagonal curvature at the trained parameters."""


Train = Callable[[Vector | None], Trained]
"""Function that trains the received model; its argument is the constant term of the gradient, float32 (N,), or None."""


@dataclass(frozen=True, kw_only=True)
class LocalRound:
    """Local round of one client, without its training."""

    client: int
    """Partition id."""
    seed: int
    """Seed of the run."""
    training: TrainingConfig
    compression: CompressionConfig
    layers: Sequence[LayerSlice]
    """Layers of the model; they tile its parameters."""
    store: StateStore
    examples: int = 0
    """Number of the client's training examples; 0: it does not weigh its update by them."""

    def answer(
        self,
        instruction: TrainInstruction,
        start: Vector,
        control: Vector | None,
        train: Train,
        sums: "CohortSum | None" = None,
        masked: Callable[[Update, Vector | None], list[NDArray[np.uint8]]] | None = None,
        *,
        tells_norm: bool = False,
    ) -> tuple[list[NDArray[Any]], TrainAnswer]:
        """Run the round. Returns the arrays and the numbers to send.

        The arrays are the payload as uint8; with a control variate of the server (float32 (N,)), a second payload with
        the change of the client's; and the BatchNorm statistics, if there are any. If `sums` are given, the update and
        the change are added to them, and only their numbers are sent. `masked` returns what is sent in
        place of the update and the statistics, and with `tells_norm` the update's norm is told.

        Raises StateError if the client's state cannot be used.
        """
        store, training, solver = self.store.of_run(instruction.run_key), self.training, EQUATIONS[self.training.solver]
        control = np.zeros(start.size, np.float32) if control is None else control
        history = ClientHistory(instruction.last_instructed, instruction.last_aggregated, instruction.last_checkpoint)
        remembers = not self.compression.lossless or training.traits.keeps_state
        state: Arrays = {}
        if remembers:
            state = restore_untaken(*store.recall(self.client, history), instruction.taken, self.seed)
        trained = train(solver.term(state, control))
        delta = trained.parameters - start
        steps = Steps(delta, training.effective_steps(trained.steps), trained.lr, training.proximal)
        solver_state, change = solver.state(state, control, steps)
        scored = instruction.curvature and self.compression.curvature_layers
        curvature = trained.curvature if scored else None
        update, kept = upload(
            *(delta, state, self.layers, self.compression, instruction, curvature),
            seed=self.seed,
            client=self.client,
            examples=self.examples,
        )
        vectors = [update] if change is None else [update, Update(delta.size, None, change)]
        wanted = sums is None or self.compression.remembers_unsent
        payloads = [self._payload(vector, instruction, wanted=wanted) for vector in vectors]
        if (remembers or trained.local) and instruction.keep_state:
            if self.compression.remembers_unsent:
                known = (
                    payloads[0] if instruction.entries is None else encode(update, client=self.client, server_round=0)
                )
                weight = weight_sent(instruction, delta.size, self.examples)
                kept |= as_sent(known, delta.size, instruction.residual_decay / weight)
            local = {f"{LOCAL}{name}": array for name, array in trained.local.items()}
            store.save(self.client, instruction.server_round, solver_state | kept | local, history)
        times = last_upload()
        answer = TrainAnswer(trained.loss, trained.work_steps, trained.compute_s, *times, reports=trained.reports)
        sent: list[NDArray[Any]] = []
        if masked is not None:
            sent += masked(update, trained.statistics)
            answer = replace(answer, norm=vectors[0].norm() if tells_norm else None)
        elif sums is None:
            sent += [np.frombuffer(payload, np.uint8) for payload in payloads]
        else:
            sums.add(solver.terms(vectors, instruction.weight))
            sizes = (len(payload) or whole_bytes(vector) for payload, vector in zip(payloads, vectors, strict=True))
            answer = replace(
                answer,
                payload_bytes=sum(sizes),
                value_bits=sum(map(bits_of_values, vectors)),
                norm=vectors[0].norm(),
                control_norm=None if change is None else vectors[1].norm(),
                exponent=exponent_in(update),
            )
        if trained.statistics is not None and masked is None:
            sent.append(trained.statistics)
        return sent, answer

    def _payload(self, vector: Update, instruction: TrainInstruction, *, wanted: bool) -> bytes:
        """The payload of a vector; empty for a whole one whose payload is not `wanted`."""
        identity: Any = {"client": self.client, "server_round": instruction.server_round}
        if not wanted and vector.indices is None and vector.quantised is None:
            refuse_unsendable(vector, **identity)
            return b""
        if isinstance(vector.quantised, Multiples):
            vector = of_entries(vector)
        return encode(vector, **identity, seeded=self.compression.traits.seeded and vector.indices is not None)
