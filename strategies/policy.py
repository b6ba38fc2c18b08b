"""The participation policy of a run: a schedule, or ISP."""

from typing import Any, Protocol

from numpy.typing import NDArray

from strategies.isp import ISP
from strategies.participation import scheduled
from strategies.replies import Replies
from strategies.roster import Round
from strategies.setup import Setup
from strategies.trial import Trial


class Policy(Protocol):
    """How many clients train in each round."""

    def due(self, now: Round) -> bool:
        """Whether this round searches for the number, and so needs everybody's loss where the method reads losses."""

    def count(self, trial: Trial) -> int:
        """How many will train, as far as is known before the losses are."""

    def settle(self, trial: Trial) -> int:
        """How many train."""

    def absorb(self, trial: Trial, replies: Replies) -> None:
        """Learn from a round's replies, before anything else does."""

    def observe(self, server_round: int, loss: float) -> None:
        """Learn the loss of the global model that round `server_round` starts from."""

    def state(self) -> dict[str, NDArray[Any]]:
        """What `load_state` needs to go on identically."""

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up a state that `state` returned."""


class Schedule:
    """The number is a function of the round; there is nothing to search, learn or remember."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def due(self, now: Round) -> bool:
        """Never."""
        return False

    def count(self, trial: Trial) -> int:
        """By the schedule."""
        run = self._setup.run
        return scheduled(self._setup.participation, trial.now, run.cohort, run.clients)

    settle = count

    def absorb(self, trial: Trial, replies: Replies) -> None:
        """Nothing."""

    def observe(self, server_round: int, loss: float) -> None:
        """Nothing."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Nothing."""


def make_policy(setup: Setup) -> Policy:
    """The policy that the settings ask for."""
    return ISP(setup) if setup.participation.searches else Schedule(setup)
