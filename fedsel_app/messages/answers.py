"""Answers: the clients' half of the protocol. Nothing that a client says is used before it is checked here.

An answer stands partly in Flower's own fields (number of examples, loss) and partly in its metrics: `to_evaluation`
gives both as Flower's `NumPyClient` returns them, and `from_evaluation` takes both.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError
from fedsel_app.messages.scalars import Config, Report, Scalar
from fedsel_app.wire.codec import WireError

MOST_EXAMPLES = 10**9
"""Upper bound of the examples, and of the local steps of a round, that a client may claim."""
LARGEST = float(np.sqrt(np.finfo(np.float32).max))
"""Upper bound of every number of a client, and of the norm of an update: its square still is a float32."""

Evaluation = tuple[float, int, Config]
"""Loss, examples and metrics: an answer to an evaluate message as Flower's `NumPyClient` returns it."""


@dataclass(frozen=True)
class EnrolAnswer:
    """Enrolment: the client's identity and size."""

    client: int
    """Partition id, 0 ... K-1."""
    examples: int
    """Training examples."""
    label_counts: bytes = b""
    """Training examples of each class or label, little-endian int64; empty where they are not asked for."""

    def to_properties(self) -> Config:
        """The properties of a Flower message."""
        return {
            "client": self.client,
            "examples": self.examples,
            "label_counts": self.label_counts,
        }

    @classmethod
    def from_properties(cls, properties: Mapping[str, Scalar], clients: int) -> Self:
        """The answer of one of `clients` clients; its label counts are checked where they are decoded.

        Raises
        ------
        ConfigError
            If it is no client of this run, or does not say what it has.
        """
        client = properties.get("client")
        if not _is_integer(client) or not 0 <= client < clients:
            raise ConfigError(
                f"A client has partition id {client!r}, but 'clients' is {clients}. "
                "Set 'clients' to the number of supernodes."
            )
        examples = properties.get("examples")
        if not _is_integer(examples) or not 1 <= examples <= MOST_EXAMPLES:
            raise ConfigError(f"Client {client} did not tell its 'examples'; every client must run this app.")
        counts = properties.get("label_counts")
        return cls(client, examples, counts if isinstance(counts, bytes) else b"")

    def counts(self, classes: int) -> NDArray[np.int64]:
        """Training examples of each class, int64 (classes,). Raises ConfigError if the client did not send these."""
        if len(self.label_counts) != 8 * classes:
            raise ConfigError(f"Client {self.client} did not send the examples of each of {classes} classes.")
        counts = np.frombuffer(self.label_counts, "<i8").astype(np.int64)
        if counts.min(initial=0) < 0 or counts.max(initial=0) > self.examples:
            raise ConfigError(
                f"Client {self.client} sent numbers of examples of each class that are not 0 to its {self.examples}."
            )
        return counts


@dataclass(frozen=True)
class TrainAnswer:
    """Local training: the client's losses, its effort and its speed, beside its update."""

    loss: float
    """Mean training loss over the local steps; NaN where a user's own client does not tell it."""
    work_steps: float
    """All that it computed, in local steps."""
    compute_s: float = 0.0
    """Seconds that the computing took; 0 is unknown."""
    upload_bytes: int = 0
    """Bytes of the last of its uploads that was timed; 0 is none."""
    upload_s: float = 0.0
    """Seconds of that upload; 0 is none."""
    reports: Mapping[Report, float] = field(default_factory=dict)
    """Numbers that the instruction asked for."""

    def to_metrics(self) -> Config:
        """The metrics of a Flower message."""
        metrics: Config = {
            "loss": self.loss,
            "work_steps": self.work_steps,
            "compute_s": self.compute_s,
            "upload_bytes": self.upload_bytes,
            "upload_s": self.upload_s,
        }
        return metrics | {report.value: number for report, number in self.reports.items()}

    @classmethod
    def from_metrics(
        cls, metrics: Mapping[str, Scalar], reports: Iterable[Report] = (), *, loss_optional: bool = False
    ) -> Self:
        """The answer with these `reports`; a time that is no number counts as unknown.

        With `loss_optional` the loss may be NaN, unknown: a user's own client does not always return one.

        Raises
        ------
        WireError
            If a number other than the times is missing, not finite, or out of its range.
        """
        work_steps = _finite(metrics, "work_steps")
        loss = metrics.get("loss")
        unknown = loss_optional and isinstance(loss, float) and math.isnan(loss)
        if not 0.0 <= work_steps <= MOST_EXAMPLES:
            raise WireError(f"the update took {work_steps} local steps; 0 to {MOST_EXAMPLES} are possible")
        return cls(
            loss=math.nan if unknown else _not_negative(metrics, "loss"),
            work_steps=work_steps,
            compute_s=_measured(metrics.get("compute_s")),
            upload_bytes=int(_measured(metrics.get("upload_bytes"))),
            upload_s=_measured(metrics.get("upload_s")),
            # The server computes the effective steps itself.
            reports={
                report: (_finite if report is Report.EFFECTIVE_STEPS else _not_negative)(metrics, report)
                for report in reports
            },
        )


@dataclass(frozen=True)
class ProbeAnswer:
    """Loss probe: the loss of the global model on this client's training examples."""

    loss: float
    """Mean over the examples."""
    examples: int
    """Examples that were evaluated."""

    def to_evaluation(self) -> Evaluation:
        """The answer as Flower's `NumPyClient` returns it."""
        return self.loss, self.examples, {}

    @classmethod
    def from_evaluation(cls, loss: float, examples: int) -> Self:
        """The answer in Flower's own fields. Raises WireError if one of them is out of its range."""
        if not _is_number(loss) or not 0.0 <= loss <= LARGEST:
            raise WireError(f"a loss of {loss}; it must be a number from 0 to {LARGEST:.3g}")
        if not _is_integer(examples) or not 1 <= examples <= MOST_EXAMPLES:
            raise WireError(f"a loss of {examples} examples; they must be 1 to {MOST_EXAMPLES}")
        return cls(loss, examples)


def evaluation_metrics(accuracy: float | None) -> Config:
    """Metrics of an evaluation, by a client or by the server: the accuracy where it is defined."""
    return {} if accuracy is None else {"accuracy": accuracy}


@dataclass(frozen=True)
class LocalTestAnswer:
    """Local test: loss and accuracy of a model on the client's own test part."""

    loss: float
    """Mean over the examples."""
    examples: int
    """Examples that were evaluated."""
    accuracy: float | None
    """The task's score, see `fedsel_app.models.tasks`; None where it is undefined."""

    @property
    def credible(self) -> bool:
        """True where a client can have as many examples as it says."""
        return 1 <= self.examples <= MOST_EXAMPLES

    def to_evaluation(self) -> Evaluation:
        """The answer as Flower's `NumPyClient` returns it."""
        return self.loss, self.examples, evaluation_metrics(self.accuracy)

    @classmethod
    def from_evaluation(
        cls, loss: float, examples: int, metrics: Mapping[str, Scalar], lowest_score: float = 0.0
    ) -> Self:
        """The answer in Flower's own fields and its metrics; what cannot be is unknown.

        A loss that is no number from 0 to `LARGEST` becomes NaN, examples that are none become 0, and an accuracy
        outside [`lowest_score`, 1] is undefined.
        """
        accuracy = metrics.get("accuracy")
        return cls(
            loss if _is_number(loss) and 0.0 <= loss <= LARGEST else math.nan,
            examples if _is_integer(examples) else 0,
            accuracy if isinstance(accuracy, float) and max(lowest_score, -LARGEST) <= accuracy <= 1.0 else None,
        )


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(metrics: Mapping[str, Scalar], name: str) -> float:
    number = metrics.get(name)
    if not isinstance(number, float) or not abs(number) <= LARGEST:
        raise WireError(f"the update came without the finite number '{name}' (at most {LARGEST:.3g})")
    return number


def _not_negative(metrics: Mapping[str, Scalar], name: str) -> float:
    number = _finite(metrics, name)
    if number < 0.0:
        raise WireError(f"the update came with a '{name}' of {number:.3g}, which cannot be negative")
    return number


def _measured(value: object) -> float:
    """A time or a size; 0 if it is no number from 0 to `LARGEST`."""
    return float(value) if _is_number(value) and 0.0 <= value <= LARGEST else 0.0
