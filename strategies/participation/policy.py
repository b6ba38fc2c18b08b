"""The participation policy of a run: a schedule, or ISP."""

from typing import Any, Protocol

from numpy.typing import NDArray

from strategies.participation.intermediate_round import IntermediateRound
from strategies.participation.isp import ISP
from strategies.participation.schedules import scheduled
from strategies.roster import RoundInfo
from strategies.round.replies import Replies
from strategies.run_context import RunContext


class Policy(Protocol):
    """How many clients train in each round."""

    def due(self, round_info: RoundInfo) -> bool:
        """Whether this round searches for the number, and so needs everybody's loss where the method reads losses."""

    def count(self, trial: IntermediateRound) -> int:
        """How many will train, as far as is known before the losses are."""

    def settle(self, trial: IntermediateRound) -> int:
        """How many train."""

    def update(self, trial: IntermediateRound, replies: Replies) -> None:
        """Learn from a round's replies, before anything else does."""

    def observe(self, server_round: int, loss: float) -> None:
        """Learn the loss of the global model that round `server_round` starts from."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What `load_state` needs to go on identically."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""


class Schedule:
    """The number is a function of the round; there is nothing to search, learn or remember."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    def due(self, round_info: RoundInfo) -> bool:
        """Never."""
        return False

    def count(self, trial: IntermediateRound) -> int:
        """By the schedule."""
        run = self._context.run
        return scheduled(self._context.participation, trial.round_info, run.cohort, run.clients)

    settle = count

    def update(self, trial: IntermediateRound, replies: Replies) -> None:
        """Nothing."""

    def observe(self, server_round: int, loss: float) -> None:
        """Nothing."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing."""


def make_policy(context: RunContext) -> Policy:
    """The policy that the settings ask for."""
    return ISP(context) if context.participation.searches else Schedule(context)
