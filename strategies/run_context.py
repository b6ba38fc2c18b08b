"""What a strategy is built from: settings, the initial model, and the links, test set and records it works with."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, SharedSettings
from fedsel_app.network.clock import RoundWork
from strategies.roster import Floats, Roster

Model = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Parameters (N,) and BatchNorm statistics (B,)."""


class Layer(Protocol):
    """The entries [start, stop) of the flat parameters that one module owns: its weight, then its bias."""

    @property
    def name(self) -> str:
        """The module's name."""

    @property
    def start(self) -> int:
        """First entry."""

    @property
    def stop(self) -> int:
        """One past the last entry."""


class Links(Protocol):
    """Uplinks and clock: simulated, or measured."""

    @property
    def mean_uplink_bits_per_s(self) -> float:
        """What is expected of a client whose link is not looked at."""

    @property
    def mean_step_s(self) -> float:
        """The same of its computing."""

    needs_losses: bool
    measured: bool
    """Whether time is real; deadlines are then as well."""

    def observe(self, server_round: int, losses: Floats) -> tuple[Floats, Floats]:
        """This round's uplink bits/s and seconds a local step, float64 (K,) each; NaN where unknown."""

    def learn(self, client: int, work_steps: float, told: Mapping[str, object]) -> None:
        """Take in the metrics of a client's reply, which took it `work_steps` local steps."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What `load_state` needs to go on identically."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""

    def finish_s(self, work: RoundWork, arrived_s: Floats) -> Floats:
        """After how many seconds each client's reply was there, float64 (r,); `arrived_s` is when it really was."""

    def round_seconds(self, work: RoundWork, wall_s: float) -> float:
        """How long the round took."""


class Recorder(Protocol):
    """Where a run is written down."""

    def client(self, row: Mapping[str, Any]) -> None:
        """Append what is known of one client."""

    def round(self, row: dict[str, Any]) -> None:
        """Append a finished round; the last one ends the run."""

    def checkpoint(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep all that the run needs to go on from its last round."""

    def finish(self, final: Model, best: Model, roster: Roster) -> None:
        """Write the summary, the final model and the best one."""


@dataclass(frozen=True)
class Evaluation:
    """Loss, accuracy and further metrics of a model on the server's test set.

    The accuracy is the task's score, the larger the better; NaN where it is undefined: see `fedsel_app.models.tasks`.
    """

    loss: float
    accuracy: float
    metrics: Mapping[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """What a round's row says of it."""
        row: dict[str, Any] = {"accuracy": self.accuracy} if math.isfinite(self.accuracy) else {}
        row["loss"] = self.loss
        return row | ({"metrics": dict(self.metrics)} if self.metrics else {})


@dataclass(frozen=True, kw_only=True)
class RunContext(SharedSettings):
    """All that a strategy is built from. The last of `layers` is the output layer; `classes` its outputs."""

    method: Settings
    initial: NDArray[np.float32]
    buffers: NDArray[np.float32]
    layers: tuple[Layer, ...]
    classes: int
    links: Links
    evaluate: Callable[[NDArray[np.float32], NDArray[np.float32]], Evaluation]
    recorder: Recorder
    surrogate: Callable[[NDArray[np.float32], NDArray[np.float32]], float] | None = None
    """Loss of a model on the server's surrogate set, where the policy asks for one."""
    pool: int = 0
    """Messages that a question to many clients is put into, where one can answer for all; 0: one to each client."""
