"""Run context of a strategy: settings, the initial model, and the links, the test set and the records of the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Settings, SharedSettings
from fedsel_app.models.array_layout import LayerSlice
from fedsel_app.network.links import Links
from fedsel_app.records.run_folder import Recorder


class Model(NamedTuple):
    """Model: float32 parameters (N,), and BatchNorm statistics (B,), which are empty without BatchNorm."""

    parameters: NDArray[np.float32]
    buffers: NDArray[np.float32]


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
