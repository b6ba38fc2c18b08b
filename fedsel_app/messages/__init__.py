"""Messages: each instruction of the server and each answer of a client, typed, in scalars that Flower can carry.

==============  ====================  ===============  ================  ======================================
Flower message  instruction           sent with it     answer            sent with it
==============  ====================  ===============  ================  ======================================
get_properties  EnrolInstruction                       EnrolAnswer
fit             TrainInstruction      global model     TrainAnswer       update as a `wire` payload, see `clients`
fit             CalibrateInstruction  global model                       BatchNorm statistics, float32 (B,)
evaluate        ProbeInstruction      global model     ProbeAnswer
evaluate        LocalTestInstruction  global model     LocalTestAnswer
==============  ====================  ===============  ================  ======================================

A field's name is its key in Flower's config, properties or metrics, and no other package names these keys. The server
sends instructions and clients send answers; what a client says is checked for type and range where its answer is read.
"""

from fedsel_app.messages.answers import (
    LARGEST,
    MOST_EXAMPLES,
    EnrolAnswer,
    Evaluation,
    LocalTestAnswer,
    ProbeAnswer,
    TrainAnswer,
    evaluation_metrics,
)
from fedsel_app.messages.bounds import lower_median, winsorised
from fedsel_app.messages.embedded import (
    EVALUATION_LOSSES,
    PARTITION_ID,
    TRAINING_LOSSES,
    Ability,
    AppEnrolment,
    AppTrainInstruction,
    embed,
    embedded,
    reported_loss,
    reported_steps,
    users_part,
)
from fedsel_app.messages.instructions import (
    CalibrateInstruction,
    EnrolInstruction,
    EvaluateInstruction,
    FitInstruction,
    Instruction,
    LocalTestInstruction,
    ProbeInstruction,
    TrainInstruction,
    read_evaluate_instruction,
    read_fit_instruction,
)
from fedsel_app.messages.scalars import Config, Report, Scalar
from fedsel_app.messages.texts import one_line

__all__ = [
    "EVALUATION_LOSSES",
    "LARGEST",
    "MOST_EXAMPLES",
    "PARTITION_ID",
    "TRAINING_LOSSES",
    "Ability",
    "AppEnrolment",
    "AppTrainInstruction",
    "CalibrateInstruction",
    "Config",
    "EnrolAnswer",
    "EnrolInstruction",
    "EvaluateInstruction",
    "Evaluation",
    "FitInstruction",
    "Instruction",
    "LocalTestAnswer",
    "LocalTestInstruction",
    "ProbeAnswer",
    "ProbeInstruction",
    "Report",
    "Scalar",
    "TrainAnswer",
    "TrainInstruction",
    "embed",
    "embedded",
    "evaluation_metrics",
    "lower_median",
    "one_line",
    "read_evaluate_instruction",
    "read_fit_instruction",
    "reported_loss",
    "reported_steps",
    "users_part",
    "winsorised",
]
