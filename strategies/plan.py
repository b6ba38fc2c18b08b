"""What a round was configured to do, kept until its replies come."""

from dataclasses import dataclass

from strategies.race import Race
from strategies.roster import Floats, Round, Selection
from strategies.trial import Trial


@dataclass(frozen=True)
class Probe:
    """The round's loss probe: its bytes both ways, seconds of each probed client, float64 (c,), and who failed it."""

    bytes: int
    seconds: Floats
    failures: list[dict[str, int | str]]


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
