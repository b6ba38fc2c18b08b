"""Participation policy: how many clients train in a round.

A schedule (`schedules`) fixes the number beforehand. A policy that searches (`isp`) first lets clients train and test
candidate models, in an intermediate round whose state is discarded.
"""

from strategies.checkpoint import Arrays
from strategies.participation.intermediate_round import IntermediateRound
from strategies.roster import Ints, RoundInfo
from strategies.round.replies import Replies


class Participation:
    """Participation policy of a run. A schedule must define only `cohort`.

    Attributes
    ----------
    aggregates : True if a round that searches is itself the intermediate round, and is aggregated
    """

    aggregates = False

    def cohort(self, round_info: RoundInfo) -> int:
        """Number of clients that train in a round, even if fewer are connected. Called after `before`."""
        raise NotImplementedError

    def searches(self, round_info: RoundInfo) -> bool:
        """True in rounds that search."""
        return False

    def epochs(self, round_info: RoundInfo) -> int:
        """Local epochs of a round; 0: those of the training settings."""
        return 0

    def before(self, intermediate: IntermediateRound) -> None:
        """Search before the cohort of the round is selected."""

    def after(self, intermediate: IntermediateRound, replies: Replies) -> None:
        """Learn from the replies of a round that searches."""

    def observe(self, server_round: int, loss: float, jury: Ints | None = None) -> None:
        """Learn the loss of the global model at the start of round `server_round`.

        `jury` are the clients that tested it, int64; None if it is from the surrogate set.
        """

    def state(self) -> Arrays:
        """The state of the policy."""
        return {}

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""
