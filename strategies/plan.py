"""What a round was configured to do, kept until its replies come."""

from dataclasses import dataclass

from strategies.race import Race
from strategies.roster import Floats, Round, Selection
from strategies.trial import Trial


@dataclass(frozen=True)
class Probe:
    """What the round's loss probe cost: bytes both ways, and seconds of each probed client, float64 (c,)."""

    bytes: int
    seconds: Floats


@dataclass(frozen=True)
class Plan:
    """What a round was configured to do."""

    now: Round
    selection: Selection
    fractions: Floats
    model_bytes: int
    probe: Probe
    trial: Trial
    wanted: int
    """Replies that count, the first that come."""
    race: Race
