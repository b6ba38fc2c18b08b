"""Pooled messages: in a simulation one message instructs several clients, and one client answers for all of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fedsel_app.messages.answers import Evaluation
from fedsel_app.messages.instructions import EvaluateInstruction
from fedsel_app.messages.scalars import Config, Scalar

POOL = "pool"
"""Key of the partition ids, commas between them, for which one client answers."""
INSTRUCTIONS = "instructions"
ANSWERS = "answers"


def pooled_clients(config: Mapping[str, Scalar]) -> tuple[int, ...]:
    """Partition ids for which a config asks one client; empty where it is an instruction to that client alone."""
    return tuple(map(int, str(config[POOL]).split(","))) if POOL in config else ()


@dataclass(frozen=True)
class PooledInstruction:
    """Evaluate instruction to several simulated clients in one message."""

    instruction: EvaluateInstruction
    """Task of each client."""
    clients: tuple[int, ...]
    """Partition ids."""

    def to_config(self) -> Config:
        """The config of a Flower message."""
        return self.instruction.to_config() | {POOL: _listed(self.clients)}


@dataclass(frozen=True)
class PooledAnswers:
    """Answers of several simulated clients to a `PooledInstruction`."""

    answers: Mapping[int, Evaluation | str]
    """By partition id: each client's own answer, or the text of its error."""

    def to_evaluation(self) -> Evaluation:
        """The answers as Flower's `NumPyClient` returns them: one metric, JSON."""
        return 0.0, len(self.answers), {ANSWERS: json.dumps(list(self.answers.items()))}

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, Scalar]) -> Self:
        """The answers in the metrics of a Flower message."""
        pairs = json.loads(str(metrics[ANSWERS]))
        return cls({client: answer if isinstance(answer, str) else tuple(answer) for client, answer in pairs})


@dataclass(frozen=True)
class PooledTraining:
    """Fit instructions to several simulated clients in one message, with the model that all of them start from."""

    configs: Mapping[int, Config]
    """Each client's own config, by partition id; none of its values is of type bytes."""

    def to_config(self) -> Config:
        """The config of a Flower message."""
        return {POOL: _listed(self.configs), INSTRUCTIONS: json.dumps(list(self.configs.values()))}

    @classmethod
    def from_config(cls, config: Mapping[str, Scalar]) -> Self:
        """The instructions in the config of a Flower message; none where it is to one client alone."""
        clients = pooled_clients(config)
        return cls(dict(zip(clients, json.loads(str(config[INSTRUCTIONS])), strict=True)) if clients else {})


@dataclass(frozen=True)
class PooledFit:
    """Answer of one simulated client to its part of a `PooledTraining`, but for its arrays."""

    arrays: int
    """Number of its arrays; those of all clients follow each other in one message."""
    examples: int
    """The client's training examples."""
    metrics: Config
    """None of them of type bytes."""


@dataclass(frozen=True)
class PooledFits:
    """Answers of several simulated clients to a `PooledTraining`, in its order."""

    fits: tuple[PooledFit | str, ...]
    """Each client's answer, or the text of its error."""

    def to_metrics(self) -> Config:
        """The metrics of a Flower message: one, JSON."""
        listed = [fit if isinstance(fit, str) else (fit.arrays, fit.examples, fit.metrics) for fit in self.fits]
        return {ANSWERS: json.dumps(listed)}

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, Scalar]) -> Self:
        """The answers in the metrics of a Flower message."""
        listed = json.loads(str(metrics[ANSWERS]))
        return cls(tuple(fit if isinstance(fit, str) else PooledFit(*fit) for fit in listed))


def _listed(clients: Mapping[int, Config] | tuple[int, ...]) -> str:
    return ",".join(map(str, clients))
