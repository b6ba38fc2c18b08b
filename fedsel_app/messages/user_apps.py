"""Messages to clients of a user's own Flower app: fedsel's keys lie beside the user's, with a prefix.

The user's client gets the user's own keys, and fedsel's mod those with the prefix; a client without the mod passes over
them. See `clients.selecting` and `simulation.flower_app`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedsel_app.messages.answers import LARGEST, MOST_EXAMPLES, EnrolAnswer
from fedsel_app.messages.instructions import TrainInstruction
from fedsel_app.messages.scalars import Config, Scalar, read
from fedsel_app.wire.codec import WireError

PREFIX = "fedsel."
TRAINING_LOSSES = ("train_loss", "train-loss", "loss")
EVALUATION_LOSSES = ("eval_loss", "eval-loss", "loss", "val_loss")
"""Metrics under which users' clients are known to return their mean loss, of training and of evaluation."""
PARTITION_ID = "partition-id"
"""Flower's name of a client's identity, in its node configuration; a user's client may return it as a property."""


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


def embed(fedsels: Mapping[str, Scalar], users: Mapping[str, Scalar]) -> Config:
    """The user's keys as they are, and fedsel's with the prefix."""
    return {**users, **{PREFIX + key: value for key, value in fedsels.items()}}


def embedded(config: Mapping[str, Scalar]) -> Config:
    """fedsel's keys, without the prefix; empty where there are none."""
    return {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}


def users_part(config: Mapping[str, Scalar]) -> Config:
    """The user's keys alone."""
    return {key: value for key, value in config.items() if not key.startswith(PREFIX)}


def app_enrolment(properties: Mapping[str, Scalar]) -> EnrolAnswer:
    """The enrolment in the properties of a user's client; without the mod, by what its `get_properties` may return."""
    if fedsels := embedded(properties):
        return EnrolAnswer.from_config(fedsels)
    names = {PARTITION_ID: "client", "examples": "examples"}
    return EnrolAnswer.from_config({names[key]: value for key, value in properties.items() if key in names})


def reported_loss(metrics: Mapping[str, Scalar], names: Iterable[str] = TRAINING_LOSSES) -> float:
    """Mean loss among the metrics of a user's client, by the first of `names`; NaN if none is from 0 to `LARGEST`."""
    for name in names:
        try:
            return float(read(metrics.get(name), float, name, 0.0, LARGEST))
        except WireError:
            continue
    return math.nan


def reported_steps(metrics: Mapping[str, Scalar]) -> tuple[int, float]:
    """Local steps and their learning rate among a user's metrics. Raises WireError if one is missing."""
    lr = read(metrics.get("lr"), float, "With control variates, a training's metric 'lr'", math.ulp(0.0), LARGEST)
    return read(metrics.get("steps"), int, "With control variates, a training's metric 'steps'", 1, MOST_EXAMPLES), lr
