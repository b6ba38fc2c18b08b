"""Run context of a strategy: settings, the initial model, and the links, the test set and the records of the run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, SharedSettings
from fedsel_app.messages.answers import TrainAnswer
from fedsel_app.models.array_layout import LayerSlice
from fedsel_app.network.links import RoundWork
from fedsel_app.records.releases import Releases
from fedsel_app.records.schema import ClientRecord, RoundRecord
from strategies.roster import Floats

Model = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Parameters (N,) and BatchNorm statistics (B,)."""


class Links(Protocol):
    """Uplinks and clock: simulated, or measured."""

    @property
    def mean_uplink_bits_per_s(self) -> float:
        """Mean uplink, for clients with an unknown link."""

    @property
    def mean_step_s(self) -> float:
        """Mean seconds of a local step, for clients with an unknown speed."""

    needs_losses: bool
    """True if the simulated links depend on the clients' losses. Then all losses are measured."""
    measured: bool
    """True in deployment: times are measured, and deadlines are real."""

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """This round's uplinks in bits/s and seconds per local step, float64 (K,) each; NaN = unknown."""

    def learn(self, client: int, answer: TrainAnswer) -> None:
        """Learn a client's speed from one of its replies."""

    def state(self) -> dict[str, NDArray[Any]]:
        """The state of the links as named arrays."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Load a state that `state` returned."""

    def finish_s(self, work: RoundWork, arrived_s: Floats) -> Floats:
        """Seconds from the start of the round to each reply, float64 (r,). `arrived_s` are the measured seconds."""

    def round_seconds(self, work: RoundWork, wall_s: float) -> float:
        """Duration of the round in seconds. `wall_s` is the measured duration."""


class Recorder(Protocol):
    """Records of a run."""

    releases: Releases
    """Count of the releases with differential privacy."""

    def clients(self, records: Iterable[ClientRecord]) -> None:
        """Append the records of clients."""

    def round(self, record: RoundRecord) -> None:
        """Append the record of a finished round, with the totals so far."""

    def checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Save the arrays from which the run continues after its last round."""

    def finish(self, final: Model, best: Model, selections: NDArray[np.int64]) -> None:
        """Write the summary, the final model and the best one. `selections` are int64 (K,), as in `Roster`."""


@dataclass(frozen=True)
class Evaluation:
    """Loss, accuracy and further metrics of a model on the server's test set.

    The accuracy is the task's score, where larger is better; NaN if undefined (see `fedsel_app.models.tasks`).
    """

    loss: float
    accuracy: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunContext(SharedSettings):
    """Everything from which a strategy is built. The last of `layers` is the output layer; `classes` is its size."""

    method: Settings
    initial: NDArray[np.float32]
    buffers: NDArray[np.float32]
    layers: tuple[LayerSlice, ...]
    classes: int
    links: Links
    evaluate: Callable[[NDArray[np.float32], NDArray[np.float32]], Evaluation | None]
    recorder: Recorder
    surrogate: Callable[[NDArray[np.float32], NDArray[np.float32]], float] | None = None
    """Loss of a model on the server's surrogate set, if the participation policy uses one."""
    lowest_score: float = 0.0
    """Smallest possible score on a client's own test part; minus infinity if the score has no lower bound."""
    losses_optional: bool = False
    """True if clients need not report their training loss; a missing loss is NaN."""
