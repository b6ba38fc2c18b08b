"""Round plan: the decisions of a round's first half, which the second half uses."""

from dataclasses import dataclass

from fedsel_app.messages.instructions import TrainInstruction
from strategies.participation.intermediate_round import IntermediateRound
from strategies.roster import Floats, RoundInfo, Selection
from strategies.round.federation import SentModel, Until
from strategies.round.probing import Probe


@dataclass(frozen=True)
class Plan:
    """Plan of a round.

    Attributes
    ----------
    instructions : client -> its train instruction
    model : the model as it is sent to the clients
    until : end of the wait for their replies
    kept_fractions : float64 (m,), of each selected client
    wanted : number of replies to aggregate, the first that arrive
    statistics : True if the selected clients also send BatchNorm statistics
    local_epochs : passes over the data instead of the usual local work; 0: the usual local work
    intermediate : the search for the size of this cohort; None without a search
    """

    round_info: RoundInfo
    probe: Probe
    selection: Selection
    instructions: dict[int, TrainInstruction]
    model: SentModel
    until: Until
    kept_fractions: Floats
    wanted: int
    statistics: bool
    local_epochs: int
    intermediate: IntermediateRound | None
