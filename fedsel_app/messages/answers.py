"""Answers: the clients' half of the protocol. Every value that a client sends is checked here before it is used."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from reprlib import repr as shortened
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.config.run import of_each, score_bounds
from fedsel_app.messages.scalars import METRIC, Config, Report, Scalar, Scalars, bounded, lenient, read
from fedsel_app.wire.codec import WireError

FORWARD_STEPS = 1 / 3
"""Cost of a forward pass in local steps: the backward pass costs about twice as much."""
MOST_EXAMPLES = 10**9
"""Upper bound of the examples, and of the local steps of a round, that a client may report."""
LARGEST = float(np.sqrt(np.finfo(np.float32).max))
"""Upper bound of every number of a client, and of the norm of an update. Its square is still a float32."""
SIGNED_REPORTS = frozenset({Report.INITIAL_LOSS, Report.EFFECTIVE_STEPS})
"""Reports that may be negative: a loss, as of a density, and the effective steps, which the server computes itself."""


class Ability(StrEnum):
    """Abilities that a user adds to a client app, one function each."""

    EXAMPLES = "examples"
    LOSSES = "losses"
    LABEL_COUNTS = "label_counts"
    GRADIENT_DEVIATION = "gradient_deviation"


@dataclass(frozen=True)
class EnrolAnswer(Scalars):
    """Enrolment: the client's identity and size."""

    title: ClassVar[str] = "The enrolment"
    client: int = bounded(0, MOST_EXAMPLES, default=-1)
    """Partition id, 0 ... K-1; -1 if the client does not report it."""
    examples: int = bounded(1, MOST_EXAMPLES, default=0)
    """Training examples; 0: unknown."""
    label_counts: bytes = lenient(b"")
    """Training examples of each class or label, little-endian int64; empty if they are not requested."""
    abilities: tuple[Ability, ...] | None = lenient(None)
    """Functions that a user's client app has; None without fedsel's mod."""
    constants: bytes = lenient(b"")
    """Marks of the tensors of its model that are never sent, little-endian float64; empty if they are not requested."""
    own_data: bool = lenient(False)
    """Whether its data are its own, rather than a part of the server's."""
    moments: bytes = lenient(b"")
    """Sums over its training examples, as `fedsel_app.data.arrays.sums` returns them, little-endian float64; empty if
    they are not requested, or its data are not its own."""

    run_key: bytes = lenient(b"")
    """Its public key of the run; empty if it is not requested."""
    key_signature: bytes = lenient(b"")
    """Signature of that key with its provisioned key."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, Scalar], clients: int) -> Self:
        """The answer of one of `clients` clients. Its label counts are checked later, when they are decoded.

        Raises ConfigError if it is not a client of this run, or does not report its examples.
        """
        answer = cls.from_config(properties)
        if not 0 <= answer.client < clients:
            raise ConfigError(
                f"A client has partition id {shortened(properties.get('client'))}, but 'clients' is {clients}. "
                "Set 'clients' to the number of supernodes."
            )
        if not answer.examples:
            raise ConfigError(f"Client {answer.client} did not report its 'examples'; every client must run this app.")
        return answer

    def counts(self, classes: int) -> NDArray[np.int64]:
        """Training examples of each class, int64 (classes,). Raises ConfigError if the client did not send these."""
        if len(self.label_counts) != 8 * classes:
            came = f", but of {len(self.label_counts) // 8}" if self.label_counts else ""
            raise ConfigError(f"Client {self.client} did not send the examples of each of {classes} classes{came}.")
        counts = np.frombuffer(self.label_counts, "<i8").astype(np.int64)
        if counts.min(initial=0) < 0 or counts.max(initial=0) > self.examples:
            raise ConfigError(
                f"Client {self.client} sent numbers of examples of each class that are not between 0 and its"
                f" {self.examples} examples."
            )
        return counts

    def sums(self, channels: int) -> NDArray[np.float64]:
        """The moments, float64 (1 + 2 C,). Raises ConfigError if they cannot be such sums."""
        size = 1 + 2 * channels
        sums = np.frombuffer(self.moments, "<f8") if len(self.moments) == 8 * size else np.zeros(size)
        total, squares = np.split(sums[1:], 2)
        sound = np.isfinite(sums).all() and sums[0] >= self.examples
        sound = sound and squares.min(initial=0.0) >= 0.0 and squares.max(initial=0.0) <= LARGEST**2
        # The square of a mean is at most the mean of the squares.
        if not sound or (np.abs(total) > np.sqrt(sums[0] * squares) * (1 + 1e-6)).any():
            raise ConfigError(f"Client {self.client} sent no moments of {channels} channels.")
        return sums.astype(np.float64)


@dataclass(frozen=True)
class PlaceAnswer(Scalars):
    """Place: the partition id of a simulated node."""

    title: ClassVar[str] = "The place"
    partition: int = bounded(0, MOST_EXAMPLES)


@dataclass(frozen=True)
class TrainAnswer(Scalars):
    """Local training: the client's losses, computing and speed, in addition to its update."""

    title: ClassVar[str] = "the update"
    loss: float = bounded(-LARGEST, LARGEST)
    """Mean training loss over the local steps; NaN if a user's own client does not report it."""
    work_steps: float = bounded(0.0, MOST_EXAMPLES)
    """All computing, in local steps."""
    compute_s: float = bounded(0.0, LARGEST, default=0.0)
    """Seconds of computing; 0: unknown."""
    upload_bytes: int = bounded(0, LARGEST, default=0)
    """Bytes of its last timed upload; 0: none."""
    upload_s: float = bounded(0.0, LARGEST, default=0.0)
    """Seconds of that upload; 0: none."""
    payload_bytes: int | None = lenient(None)
    """Bytes of the payloads of a client whose vectors a simulated worker has added to a sum; None: they were sent."""
    value_bits: int | None = lenient(None)
    """Bits of the values of these payloads."""
    norm: float | None = bounded(0.0, LARGEST, default=None)
    """Norm of the update."""
    control_norm: float | None = bounded(0.0, LARGEST, default=None)
    """Norm of the change of the control variate, if there is one."""
    exponent: int | None = lenient(None)
    """Exponent of the largest value of its update, if this is in multiples of a grid."""
    reports: Mapping[str, float] = field(default_factory=dict, metadata={"apart": True})
    """Numbers that the instruction requested, each under its own key: those of `Report`, and metrics, which are NaN if
    undefined."""

    def to_config(self) -> Config:
        """The metrics of a Flower message."""
        return super().to_config() | {str(report): number for report, number in self.reports.items()}

    @classmethod
    def from_metrics(
        cls, metrics: Mapping[str, Scalar], reports: Iterable[str] = (), *, loss_optional: bool = False
    ) -> Self:
        """The answer with these `reports`. A time that is not a number counts as unknown, and so does a metric that is
        missing or impossible.

        With `loss_optional` the loss may be NaN (unknown), because a user's own client may not return it.

        Raises WireError if a number other than the times is missing, not finite, or out of its range.
        """
        loss = metrics.get("loss")
        if loss_optional and isinstance(loss, float) and math.isnan(loss):
            return replace(cls.from_metrics({**metrics, "loss": 0.0}, reports), loss=loss)
        values = dict.fromkeys(reports, math.nan)
        for report in values:
            if report.startswith(METRIC):
                with suppress(WireError):
                    values[report] = read(metrics.get(report), float, report, *sent_bounds(report))
            else:
                low = -LARGEST if report in SIGNED_REPORTS else 0.0
                values[report] = read(metrics.get(report), float, f"{cls.title}'s '{report}'", low, LARGEST)
        return replace(cls.from_config(metrics), reports=values)


@dataclass(frozen=True)
class UnmaskAnswer(Scalars):
    """Shares that unmask a sum, or why there are none."""

    title: ClassVar[str] = "the answer with shares"
    shares: bytes = lenient(b"")
    """The shares, in the order of `fedsel_app.secure_sums.statement.Statement.wanted`."""
    closed: int = bounded(0, MOST_EXAMPLES, default=-1)
    """The client whose box does not open, so that no share is told; -1: none."""


@dataclass(frozen=True)
class EvaluateAnswer(Scalars):
    """Loss probe or local test: the model's results on the client's own examples. Invalid values count as unknown."""

    title: ClassVar[str] = "the evaluation"
    loss: float = bounded(-LARGEST, LARGEST, default=math.nan)
    """Mean over the examples; NaN if unknown."""
    examples: int = bounded(1, MOST_EXAMPLES, default=0)
    """Number of evaluated examples; 0 for a number out of range."""
    scores: Mapping[str, float] = field(default_factory=dict, metadata={"apart": True})
    """The scores that are defined, each under its own name (see `fedsel_app.models.tasks`): of a local test all, of a
    probe the metrics of its instruction."""

    def to_config(self) -> Config:
        """The metrics of a Flower message."""
        return {**self.scores} | super().to_config()

    @classmethod
    def from_evaluation(
        cls, loss: float, examples: int, metrics: Mapping[str, Scalar], scores: Iterable[str] = ()
    ) -> Self:
        """The answer in Flower's own fields and its metrics, with the `scores` that are within their bounds."""
        answer, values = cls.from_config({"loss": loss, "examples": examples}), dict[str, float]()
        for name in scores:
            with suppress(WireError):
                values[name] = read(metrics.get(name), float, name, *sent_bounds(name))
        return replace(answer, scores=values)


def sent_bounds(score: str) -> tuple[float, float]:
    """Least and largest value of the score of this name, or of its report, that a client may send."""
    score = score.removeprefix(METRIC)
    low, high = (0.0, 1.0) if of_each(score) else score_bounds(score.replace("-", "_"))
    return max(low, -LARGEST), min(high, LARGEST)
