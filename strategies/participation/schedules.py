"""Participation policy: how many clients train in a round, by a schedule. `isp` searches for the number instead.

Linear growth is called AdaFL in the ISP paper (Skorik et al., Sec. B.4, after Q. Li, X. Li, L. Zhou, X. Yan, "AdaFL:
Adaptive Client Selection and Dynamic Contribution Evaluation for Efficient Federated Learning", ICASSP 2024):
`adafl-full` grows from 10 clients to all clients over the run; `adafl-econom` is the rule of the ISP authors' code.

Deviations
----------
- The longer local training in the warm-up of `adafl-econom` (3 epochs in the authors' code) is left out.
- Halves are rounded to even, as the authors' code rounds them.
"""

from fedsel_app.config import ParticipationConfig
from strategies.checkpoint import Arrays
from strategies.opened import OpenRound
from strategies.roster import Ints, RoundInfo
from strategies.round.replies.training import Replies
from strategies.run_context import RunContext

FULL_FIRST = 10
ECONOM_FIRST = 5


def linear_growth(elapsed: float, first: int, last: int, every: float) -> int:
    """Linear growth: m_0 + `elapsed` / `every`, at most `last`; halves are rounded to even."""
    return round(min(first + max(elapsed, 0.0) / every, last))


def scheduled(config: ParticipationConfig, round_info: RoundInfo, cohort: int, clients: int) -> int:
    """Number of `clients` that train in a round, at least 1: by the schedule, or the fixed `cohort`."""
    count = cohort
    if config.participation == "adafl-full":
        first = min(config.growth_first or FULL_FIRST, clients)
        growing = max(round_info.total - 1, 1) / max(clients - first, 1)
        count = linear_growth(round_info.scheduled - 1, first, clients, growing)
    elif config.participation == "adafl-econom":
        elapsed = round_info.scheduled - config.growth_warmup
        count = linear_growth(elapsed, config.growth_first or ECONOM_FIRST, config.growth_last, config.growth_every)
    return min(max(count, 1), clients)


class Participation:
    """Participation policy of a run: how many clients train in a round, by a schedule.

    A policy that searches overrides the first three functions.

    Attributes
    ----------
    needs_single_updates : `learn` reads the updates of the clients
    """

    needs_single_updates = False

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def count(self, opened: OpenRound) -> int:
        """Number of clients that train in a round. It may be larger than the number that is connected.

        A policy may also set the round's `local_epochs` and `statistics`.
        """
        run = self._context.run
        return scheduled(self._context.participation, opened.info, run.cohort, run.clients)

    def learn(self, opened: OpenRound, replies: Replies) -> None:
        """Learn from the replies of a round, before they are aggregated."""

    def observe(self, server_round: int, loss: float, jury: Ints | None = None) -> None:
        """Learn the loss of the global model at the start of round `server_round`.

        `jury` are the clients that tested it, int64; None if it is from the surrogate set.
        """

    def state(self) -> Arrays:
        """The state of the policy."""
        return {}

    def load_state(self, state: Arrays) -> None:
        """Load a state that `state` returned."""
