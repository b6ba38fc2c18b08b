"""Instructions: the server's half of the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from fedsel_app.messages.scalars import Config, Report, Scalar, Scalars
from fedsel_app.wire.codec import WireError

TASK = "task"
"""Key under which every config names its instruction, where one Flower message serves several."""


@dataclass(frozen=True)
class Instruction(Scalars):
    """Instruction in general: its fields, beside its `task`."""

    task: ClassVar[str]
    message_type: ClassVar[str]
    """Of the Flower message that carries it: query, train or evaluate."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = f"The instruction {cls.task}"

    def to_config(self) -> Config:
        """The fields and the task as the config of a Flower message."""
        return {TASK: self.task} | super().to_config()


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
FirstT = TypeVar("FirstT", bound=Instruction)
SecondT = TypeVar("SecondT", bound=Instruction)


def read_fit_instruction(config: Mapping[str, Scalar]) -> FitInstruction:
    """Read the instruction of a fit message. Raises WireError if it is none, or as `Scalars.from_config` does."""
    return _read(config, TrainInstruction, CalibrateInstruction)


def read_evaluate_instruction(config: Mapping[str, Scalar]) -> EvaluateInstruction:
    """Read the instruction of an evaluate message. Raises WireError if it is none, or as `Scalars.from_config` does."""
    return _read(config, ProbeInstruction, LocalTestInstruction)


def _read(config: Mapping[str, Scalar], first: type[FirstT], second: type[SecondT]) -> FirstT | SecondT:
    task = config.get(TASK)
    if task not in (first.task, second.task):
        raise WireError(f"A client is asked for the task {first.task} or {second.task} here. Got {str(task)!r}.")
    return (first if task == first.task else second).from_config(config)
