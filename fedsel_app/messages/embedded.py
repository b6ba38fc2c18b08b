"""Embedded messages: fedsel's instructions and answers in those of a user's own Flower app, their keys with a prefix.

The user's client gets the user's own keys, and the mod `selecting` those with the prefix; a client without the mod
passes over them. See `clients.selecting` and `simulation.flower_app`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from fedsel_app.messages.answers import LARGEST, EnrolAnswer
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.scalars import Config, Scalar

PREFIX = "fedsel."
TRAINING_LOSSES = ("train_loss", "train-loss", "loss")
EVALUATION_LOSSES = ("eval_loss", "eval-loss", "loss", "val_loss")
"""Metrics under which users' clients are known to return their mean loss, of training and of evaluation."""
PARTITION_ID = "partition-id"
"""Flower's name of a client's identity, in its node configuration; a user's client may return it as a property."""


class Ability(StrEnum):
    """Abilities that a user adds to the mod `selecting`, a function each."""

    EXAMPLES = "examples"
    LOSSES = "losses"
    LABEL_COUNTS = "label_counts"
    GRADIENT_DEVIATION = "gradient_deviation"
    CURVATURE = "curvature"
    CONTROL_VARIATES = "control_variates"


@dataclass(frozen=True)
class AppTrainInstruction(TrainInstruction):
    """Local training by a user's own client, whose update the mod compresses by the settings that come with it."""

    seed: int = 0
    """Of the run."""
    compression: str = ""
    """Settings of the compression, as JSON."""
    statistics_positions: str = ""
    """Positions of the running statistics among the arrays, commas between them."""
    with_control: bool = False
    """Under SCAFFOLD: the server's control variate, float32 (N,), follows the model's arrays."""


def embed(own: Mapping[str, Scalar], users: Mapping[str, Scalar]) -> Config:
    """The user's keys as they are, and fedsel's `own` with the prefix."""
    return {**users, **{PREFIX + key: value for key, value in own.items()}}


def embedded(config: Mapping[str, Scalar]) -> Config:
    """fedsel's own keys, without the prefix; empty where there are none."""
    return {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}


def users_part(config: Mapping[str, Scalar]) -> Config:
    """The user's keys alone."""
    return {key: value for key, value in config.items() if not key.startswith(PREFIX)}


def reported_loss(metrics: Mapping[str, Scalar], names: Iterable[str] = TRAINING_LOSSES) -> float:
    """Mean loss among the metrics of a user's client, by the first of `names`; NaN if none is from 0 to `LARGEST`."""
    for name in names:
        loss = metrics.get(name)
        if isinstance(loss, int | float) and not isinstance(loss, bool) and 0.0 <= loss <= LARGEST:
            return float(loss)
    return math.nan


def reported_steps(metrics: Mapping[str, Scalar]) -> tuple[int, float]:
    """Local steps and their learning rate among a user's metrics. Raises ValueError if one is missing."""
    steps, lr = _whole(metrics.get("steps")), metrics.get("lr")
    if steps is None or steps < 1 or not isinstance(lr, float) or not 0.0 < lr <= LARGEST:
        raise ValueError(f"With control variates a training returns the metrics 'steps' and 'lr'. Got {dict(metrics)}.")
    return steps, lr


@dataclass(frozen=True)
class AppEnrolment:
    """Enrolment of a user's own client, with the mod `selecting` or without.

    Without the mod, identity and examples are those that the client's own `get_properties` may return.
    """

    client: int | None
    """Partition id; None where the client does not tell it."""
    examples: int = 0
    """Training examples; 0: unknown until its first training."""
    label_counts: bytes = b""
    """As in `EnrolAnswer`."""
    abilities: frozenset[Ability] | None = None
    """Functions that the mod has; None without the mod."""

    def to_config(self) -> Config:
        """fedsel's part of the answer. Raises ValueError without a partition id."""
        if self.client is None:
            raise ValueError(
                f"The mod `selecting` and `client_app` need a '{PARTITION_ID}' in the node configuration: "
                'flower-supernode --node-config "partition-id=0 num-partitions=..."'
            )
        answer = EnrolAnswer(self.client, self.examples, self.label_counts).to_properties()
        return answer | {"abilities": ",".join(sorted(self.abilities or ()))}

    @classmethod
    def from_config(cls, own: Mapping[str, Scalar]) -> Self:
        """The enrolment in fedsel's part of an answer. What is of another type than it must be counts as absent."""
        counts, abilities = own.get("label_counts"), str(own.get("abilities", "")).split(",")
        return cls(
            _whole(own.get("client")),
            _whole(own.get("examples")) or 0,
            counts if isinstance(counts, bytes) else b"",
            frozenset(_known(abilities)),
        )

    @classmethod
    def from_properties(cls, properties: Mapping[str, Scalar]) -> Self:
        """The enrolment in the properties of a legacy client, with the mod or without."""
        if own := embedded(properties):
            return cls.from_config(own)
        return cls(_whole(properties.get(PARTITION_ID)), _whole(properties.get("examples")) or 0)


def _known(abilities: Iterable[str]) -> Iterable[Ability]:
    return (ability for ability in Ability if ability in abilities)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
