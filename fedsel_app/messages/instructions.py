"""Instructions: the server's half of the protocol, as frozen dataclasses that become Flower configs and come back."""

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self

from fedsel_app.messages.scalars import Config, Report, Scalar

TASK = "task"
"""Key under which every config names its instruction, where one Flower message serves several."""


@dataclass(frozen=True)
class Instruction:
    """Instruction in general: its fields are scalars under their own names, beside its `task`."""

    task: ClassVar[str]
    message_type: ClassVar[str]
    """Of the Flower message that carries it: query, train or evaluate."""

    def to_config(self) -> Config:
        """The config of a Flower message."""
        return {TASK: self.task} | {field.name: _to_scalar(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Scalar]) -> Self:
        """The instruction in a config; a key with a default may be missing, other keys are passed over.

        Raises
        ------
        ValueError
            If a key is missing or its value is of another type.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name in config:
                values[field.name] = _from_scalar(config[field.name], field.type, f"{cls.task}'s '{field.name}'")
            elif field.default is MISSING:
                raise ValueError(
                    f"The instruction {cls.task} came without '{field.name}'. Server and clients must run the same app."
                )
        return cls(**values)


@dataclass(frozen=True)
class EnrolInstruction(Instruction):
    """Enrolment: the client is asked for its identity and its size."""

    task: ClassVar[str] = "enrol"
    message_type: ClassVar[str] = "query"
    label_counts: bool = False
    """Also its training examples of each class or label."""


@dataclass(frozen=True)
class TrainInstruction(Instruction):
    """Local training: the client trains the model that comes with it and sends its compressed update."""

    task: ClassVar[str] = "train"
    message_type: ClassVar[str] = "train"
    server_round: int
    """Round t = 1..T."""
    run_key: str
    """Names the run; the client keeps its state under it."""
    learning_rate: float
    """Of the local steps."""
    kept_fraction: float
    """Share of the update's entries to send, (0, 1]."""
    residual_decay: float
    """Factor on what error feedback remembers of the rest, beta in [0, 1]."""
    curvature: bool
    """The client scores some layers by their curvature, where the compression settings say so."""
    last_instructed: int = 0
    """Last round in which this client was asked to train; 0 is never."""
    last_aggregated: int = 0
    """Last round whose update of this client was aggregated; 0 is never."""
    taken: float = 1.0
    """Share of that update which the server took, in [0, 1]; the rest goes back into the client's residual."""
    last_checkpoint: int = 0
    """Round of the server's checkpoint, to which it may go back; 0 is none."""
    reports: tuple[Report, ...] = ()
    """Numbers to measure beside the training."""
    estimated: bool = False
    """Under ef21: the server has an estimate of this client's update."""
    keep_state: bool = True
    """Without it the client's state stays as it was: the training is that of an intermediate round."""
    statistics: bool = False
    """The client sends the BatchNorm statistics that its training left, float32 (B,), as its last array."""
    local_epochs: int = 0
    """Passes over the client's data in place of its usual local work; 0: as its settings say."""


@dataclass(frozen=True)
class CalibrateInstruction(Instruction):
    """BatchNorm calibration: the client moves the statistics of the model that comes with it, and no weight."""

    task: ClassVar[str] = "calibrate"
    message_type: ClassVar[str] = "train"
    server_round: int
    """Round t = 1..T."""
    batches: int
    """Mini-batches to pass through the model in train mode."""


@dataclass(frozen=True)
class ProbeInstruction(Instruction):
    """Loss probe: the client evaluates the global model on examples of its own, without augmentation."""

    task: ClassVar[str] = "probe"
    message_type: ClassVar[str] = "evaluate"
    server_round: int
    """Round t = 1..T."""
    batches: int
    """Mini-batches to draw; 0 is all examples."""
    test_part: bool = False
    """The examples are the client's own test part instead of those it trains on."""


@dataclass(frozen=True)
class LocalTestInstruction(Instruction):
    """Local test: the client evaluates a model on its own test part."""

    task: ClassVar[str] = "test"
    message_type: ClassVar[str] = "evaluate"
    server_round: int
    """Round t = 1..T."""


FitInstruction = TrainInstruction | CalibrateInstruction
EvaluateInstruction = ProbeInstruction | LocalTestInstruction


def read_fit_instruction(config: Mapping[str, Scalar]) -> FitInstruction:
    """The instruction of a fit message. Raises ValueError if it is none, or as `Instruction.from_config` does."""
    kinds: dict[str, type[FitInstruction]] = {kind.task: kind for kind in (TrainInstruction, CalibrateInstruction)}
    return kinds[_task(config, kinds)].from_config(config)


def read_evaluate_instruction(config: Mapping[str, Scalar]) -> EvaluateInstruction:
    """The instruction of an evaluate message. Raises ValueError if it is none, or as `Instruction.from_config` does."""
    kinds: dict[str, type[EvaluateInstruction]] = {kind.task: kind for kind in (ProbeInstruction, LocalTestInstruction)}
    return kinds[_task(config, kinds)].from_config(config)


def _task(config: Mapping[str, Scalar], tasks: Iterable[str]) -> str:
    task = str(config.get(TASK))
    if task not in tasks:
        raise ValueError(f"A client is asked for the task {' or '.join(tasks)} here. Got {task!r}.")
    return task


def _to_scalar(value: Any) -> Scalar:
    scalar: Scalar = ",".join(value) if isinstance(value, tuple) else value
    return scalar


def _from_scalar(value: Scalar, kind: Any, name: str) -> Any:
    """The value of a field of type `kind`; a tuple of reports comes as one text with commas."""
    reports = kind not in (bool, float, int, str)
    sent_as = str if reports else kind
    if not isinstance(value, (float, int) if kind is float else sent_as) or isinstance(value, bool) != (kind is bool):
        raise ValueError(f"The instruction {name} must be of type {sent_as.__name__}. Got {value!r}.")
    return tuple(Report(report) for report in str(value).split(",") if report) if reports else kind(value)
