"""Run context of a strategy: settings, the initial model, and the links, the test set and the records of the run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, SharedSettings
from fedsel_app.messages.answers import EnrolAnswer
from fedsel_app.messages.reported_values import one_line
from fedsel_app.models.constant_marks import Marks, differing
from fedsel_app.records.run_folder import Recorder
from strategies.method import MethodContext


class Model(NamedTuple):
    """Model: float32 parameters (N,), and BatchNorm statistics (B,), which are empty without BatchNorm."""

    parameters: NDArray[np.float32]
    buffers: NDArray[np.float32]


@dataclass(frozen=True)
class Evaluation:
    """Loss, score and further metrics of a model on the server's test set; the score is NaN if it is undefined.

    The `loss` is None if a user's own test has none. `validation` is the evaluation on the server's validation set, if
    it has one.
    """

    loss: float | None
    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    validation: "Evaluation | None" = None


@dataclass(frozen=True)
class Admission:
    """Admission: what the model requires of a client that enrols; by default nothing."""

    least_examples: int = 1
    """Training examples without which a client can never train; also the least size of a mini-batch."""
    constants: tuple[str, ...] = ()
    """Names of the tensors of the model that are never sent: frozen weights and constant buffers."""
    marks: Marks = field(default_factory=lambda: np.zeros(0))
    """Their marks (see `fedsel_app.models.constant_marks`)."""
    schema: str = ""
    """What the server states of the data (see `fedsel_app.messages.schema`)."""
    scale: Callable[[NDArray[np.float64]], str] | None = None
    """Scales the server's test set by the clients' summed moments, and returns the schema with these. None: the server
    asks no client for moments."""
    channels: int = 0
    """Number of channels or features that have moments."""
    features: tuple[str, ...] = ()
    """Column of each feature of a table; "" for a category."""
    example_clip: float = 0.0
    """Setting of this name; the clients' moments count for no more examples. 0 sets no bound for them."""

    def check(self, answer: EnrolAnswer) -> None:
        """Raise ConfigError for a client that cannot train, or whose constants differ from the server's."""
        if answer.examples < self.least_examples:
            raise ConfigError(
                f"Give client {answer.client} at least {self.least_examples} training examples, or leave it out. It "
                f"has {answer.examples}, and the model (its BatchNorm) cannot train on so few."
            )
        theirs = np.frombuffer(answer.constants, "<f8") if len(answer.constants) % 8 == 0 else np.zeros(0)
        if self.constants and (others := differing(self.constants, self.marks, theirs)):
            raise ConfigError(
                f"Let the function of the model build the same weights on every machine. Those of client "
                f"{answer.client} that are never sent (frozen weights and buffers) differ from the server's in "
                f"{one_line(', '.join(others))}."
            )
        if answer.moments:
            answer.sums(self.channels)


EVERYBODY = Admission()


@dataclass(frozen=True, kw_only=True)
class RunContext(SharedSettings, MethodContext):
    """Everything from which a strategy is built."""

    buffers: NDArray[np.float32]
    """Buffers of the model that are sent, (B,): the statistics of BatchNorm, then those that are averaged."""
    evaluate: Callable[[NDArray[np.float32], NDArray[np.float32]], Evaluation | None]
    recorder: Recorder
    variances: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """True for the first S of `buffers` that cannot be negative, (S,); S is the number of statistics."""
    admission: Admission = EVERYBODY
    surrogate: Callable[[NDArray[np.float32], NDArray[np.float32]], float] | None = None
    """Loss of a model on the server's surrogate set, if the participation policy uses one."""
    score: str = "accuracy"
    """Name of the score, by which models are compared."""
    checkpoints_wait: bool = False
    """True if a checkpoint waits until the rounds since the last one took as long as writing that one."""
    losses_optional: bool = False
    """True if clients need not report their training loss; a missing loss is NaN."""
    classes_told: bool = False
    """True if the number of classes is that of the clients' label counts, because the model does not tell it."""
