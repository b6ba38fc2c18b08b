"""Participation policy: how many clients train in a round.

A schedule (`schedules`) says it beforehand. A policy that searches (`isp`) lets clients train and test candidate models
first, in an intermediate round of which nothing is kept.
"""

from strategies.checkpoint import Arrays
from strategies.participation.intermediate_round import IntermediateRound
from strategies.roster import Ints, RoundInfo
from strategies.round.replies import Replies


class Participation:
    """Participation policy of a run. `cohort` is all that a schedule must write.

    Attributes
    ----------
    aggregates : True where the round of a search is itself the intermediate round, and is aggregated
    """

    aggregates = False

    def cohort(self, round_info: RoundInfo) -> int:
        """Number of clients that train in a round, whether or not so many are connected; after `before`."""
        raise NotImplementedError

    def searches(self, round_info: RoundInfo) -> bool:
        """True in the rounds that search."""
        return False

    def epochs(self, round_info: RoundInfo) -> int:
        """Local epochs of a round; 0: as many as the training settings say."""
        return 0

    def before(self, intermediate: IntermediateRound) -> None:
        """Search, before the cohort of a round that searches is selected."""

    def after(self, intermediate: IntermediateRound, replies: Replies) -> None:
        """Learn from the replies of a round that searches."""

    def observe(self, server_round: int, loss: float, jury: Ints | None = None) -> None:
        """Learn the loss of the global model that round `server_round` starts from.

        `jury` are the clients that tested it, int64; None where the surrogate set did.
        """

    def state(self) -> Arrays:
        """All that it has learnt."""
        return {}

    def load_state(self, state: Arrays) -> None:
        """Go on from a state that `state` returned."""
