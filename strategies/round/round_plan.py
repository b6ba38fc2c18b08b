"""What a round was configured to do, kept until its replies come."""

from dataclasses import dataclass

from strategies.participation.intermediate_round import IntermediateRound
from strategies.roster import Floats, RoundInfo, Selection
from strategies.round.deadline import ReplyDeadline


@dataclass(frozen=True)
class Probe:
    """The round's loss probe: its bytes both ways, seconds of each probed client, float64 (c,), and who failed it."""

    bytes: int
    seconds: Floats
    failures: list[dict[str, int | str]]


@dataclass(frozen=True)
class Plan:
    """What a round was configured to do."""

    round_info: RoundInfo
    selection: Selection
    fractions: Floats
    model_bytes: int
    probe: Probe
    trial: IntermediateRound
    wanted: int
    """Replies that count, the first that come."""
    deadline: ReplyDeadline
