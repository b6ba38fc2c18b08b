"""Round plan: the decisions of a round's first half, from which the second half goes on."""

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
    instructions : client -> what it is to train
    model : the model as it is sent to each of them
    until : end of the wait for their replies
    kept_fractions : float64 (m,), of each selected client
    wanted : number of replies to aggregate, the first that arrive
    statistics : True where the selected send BatchNorm statistics too
    local_epochs : passes over their data in place of their usual local work; 0: as the settings say
    intermediate : the search for the size of this cohort; None where the round does not search
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
