"""Instructions: the server's half of the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

from fedsel_app.messages.scalars import Config, Report, Scalar, Scalars
from fedsel_app.wire.codec import WireError

TASK = "task"
"""Key of the instruction's name in every config, because one kind of Flower message carries several instructions."""


@dataclass(frozen=True)
class Instruction(Scalars):
    """Base of all instructions: fields, and the name `task`."""

    task: ClassVar[str]
    message_type: ClassVar[str]
    """Type of the Flower message that carries it: query, train or evaluate."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = f"The instruction {cls.task}"

    def to_config(self) -> Config:
        """The fields and the task as the config of a Flower message."""
        return {TASK: self.task} | super().to_config()


@dataclass(frozen=True)
class EnrolInstruction(Instruction):
    """Enrolment: the client reports its identity and its number of examples."""

    task: ClassVar[str] = "enrol"
    message_type: ClassVar[str] = "query"
    label_counts: bool = False
    """It also reports its training examples of each class or label."""
    constants: bool = False
    """It also reports the marks of the tensors of its model that are never sent."""
    schema: str | None = None
    """What the server states of the data (see `fedsel_app.messages.schema`); None: nothing. A client with data of its
    own keeps it for the run."""
    moments: bool = False
    """A client whose data are its own also reports the moments of its training examples."""
    run_key: bool = False
    """It also makes a key of the run, for secure sums, and signs it."""


@dataclass(frozen=True)
class PlaceInstruction(Instruction):
    """Place: a simulated node reports its partition id, whether or not a client of the run has this id."""

    task: ClassVar[str] = "place"
    message_type: ClassVar[str] = "query"


@dataclass(frozen=True, kw_only=True)
class PersonalInstruction(Instruction):
    """Base of instructions for which a client that keeps layers of the model loads them; empty if it keeps none."""

    task: ClassVar[str] = ""
    run_key: str = ""
    last_instructed: int = 0
    last_aggregated: int = 0
    """These three are those of `TrainInstruction`."""


@dataclass(frozen=True)
class TrainInstruction(Instruction):
    """Local training: the client trains the model of the message and sends its compressed update."""

    task: ClassVar[str] = "train"
    message_type: ClassVar[str] = "train"
    server_round: int
    """Round t = 1..T."""
    run_key: str
    """Identifies the run; the client keeps its state under this key, which only the run's server and it know."""
    learning_rate: float
    """Learning rate of the local steps."""
    kept_fraction: float
    """Share of the update's entries to send, (0, 1]."""
    residual_decay: float
    """Factor on the residual of error feedback, beta in [0, 1]."""
    curvature: bool
    """The client scores some layers by their curvature, if the compression settings ask for it."""
    last_instructed: int = 0
    """Last round in which the server asked this client to train; 0 is never."""
    last_aggregated: int = 0
    """Last round whose update of this client was aggregated; 0 is never."""
    taken: float = 1.0
    """Share of that update that the server took, in [0, 1]. The rest returns to the client's residual."""
    last_checkpoint: int = 0
    """Round of the server's checkpoint, to which it may go back; 0 is none."""
    reports: tuple[Report, ...] = ()
    """Numbers to measure in addition to training."""
    metrics: str = ""
    """Metrics of the trained model to measure, separated by commas."""
    test_part: bool = False
    """They are measured on the client's own test part instead of its training examples."""
    estimated: bool = False
    """With ef21: the server has an estimate of this client's update."""
    keep_state: bool = True
    """If False, training does not change the client's state, as in an intermediate round."""
    statistics: bool = False
    """The client sends the buffers after its training, float32 (B,), as its last array."""
    local_steps: int = 0
    """Local steps instead of the client's usual local work; 0: by `local_epochs`."""
    local_epochs: int = 0
    """Passes over the client's data instead of its usual local work; 0: the usual local work."""
    weight: float = 0.0
    """Weight with which a simulated worker may add the update to an exact sum over its clients, which it then sends in
    place of the updates; 0: it must send the update."""
    entries: bytes | None = None
    """Entries that all clients of the round send (see `fedsel_app.wire.entries`); None: each chooses its own."""
    masks: str | None = None
    """With whom the client masks what it sends (see `fedsel_app.secure_sums.statement.stated`); None: it does not."""
    buffers_exponent: int | None = None
    """Exponent of the range in which buffers are masked (see `fedsel_app.secure_sums.buffers`); None: they are not."""

    @property
    def summed(self) -> str:
        """Hash of what a secure sum is of: the entries, and the range of the buffers."""
        return sha256((self.entries or b"") + str(self.buffers_exponent).encode()).hexdigest()


@dataclass(frozen=True)
class MaskInstruction(Instruction):
    """Masks: another attempt of a round, in which the client masks the same numbers once more, without training."""

    task: ClassVar[str] = "mask"
    message_type: ClassVar[str] = "train"
    server_round: int
    """Round t = 1..T."""
    masks: str = ""
    """As of a `TrainInstruction`."""


@dataclass(frozen=True)
class UnmaskInstruction(Instruction):
    """Shares: the client tells those that unmask the sum of a round."""

    task: ClassVar[str] = "unmask"
    message_type: ClassVar[str] = "query"
    server_round: int
    """Round t = 1..T."""
    attempt: int
    """Attempt of the round, from 0."""
    answered: str = ""
    """Clients in the sum, separated by commas."""
    gone: str = ""
    """The other clients of the cohort."""
    boxes: bytes | None = None
    """The boxes for this client, by ascending sender; all have the same size."""


@dataclass(frozen=True)
class CalibrateInstruction(PersonalInstruction):
    """BatchNorm calibration: the client updates only the statistics of the model in the message."""

    task: ClassVar[str] = "calibrate"
    message_type: ClassVar[str] = "train"
    server_round: int
    """Round t = 1..T."""
    batches: int
    """Mini-batches to pass through the model in train mode."""
    earlier_batches: int = 0
    """Mini-batches of other clients that have contributed to the statistics in this round."""


@dataclass(frozen=True)
class ProbeInstruction(PersonalInstruction):
    """Loss probe: the client evaluates the global model on its own examples, without augmentation."""

    task: ClassVar[str] = "probe"
    message_type: ClassVar[str] = "evaluate"
    server_round: int
    """Round t = 1..T."""
    batches: int
    """Number of mini-batches to draw; 0 takes all examples."""
    test_part: bool = False
    """The examples are the client's own test part instead of its training examples."""
    metrics: str = ""
    """Metrics to measure on them too, separated by commas."""


@dataclass(frozen=True)
class LocalTestInstruction(PersonalInstruction):
    """Local test: the client evaluates a model on its own test part."""

    task: ClassVar[str] = "test"
    message_type: ClassVar[str] = "evaluate"
    server_round: int
    """Round t = 1..T."""


INSTRUCTIONS: tuple[type[Instruction], ...] = (
    EnrolInstruction,
    PlaceInstruction,
    TrainInstruction,
    MaskInstruction,
    UnmaskInstruction,
    CalibrateInstruction,
    ProbeInstruction,
    LocalTestInstruction,
)


def read_instruction(config: Mapping[str, Scalar], message_type: str) -> Instruction:
    """Read the instruction of a message. Raises WireError if it has none of its type, and as `Scalars.from_config`."""
    kinds = {kind.task: kind for kind in INSTRUCTIONS if kind.message_type == message_type}
    task = str(config.get(TASK))
    if task not in kinds:
        raise WireError(f"The task of this message must be {' or '.join(kinds)}. Got {task!r}.")
    return kinds[task].from_config(config)
