"""Round count: which of the run's `rounds` a Flower round belongs to, and which of them is the last.

A method may have rounds of its own, of several Flower rounds each: `SelectionMethod.most_iterations` above 1. `rounds`
counts those then, the schedules of the learning rate and of the budget follow them, and the model is evaluated at
their ends.
"""

from strategies.method import SelectionMethod
from strategies.roster import RoundInfo


class RoundCount:
    """Round count of a run: numbers of Flower rounds are from 1 and go on over a restart."""

    def __init__(self, method: SelectionMethod, rounds: int) -> None:
        self._method, self._rounds = method, rounds
        self._own = method.most_iterations(method.config) > 1
        self.most = rounds * method.most_iterations(method.config)
        """Most Flower rounds of the run."""

    def info(self, number: int) -> RoundInfo:
        """Return the round info of Flower round `number`; the roster holds its clients."""
        return RoundInfo(number, self._rounds, *(self._next() if self._own else ()))

    def over(self, number: int) -> bool:
        """True if the run is over after Flower round `number`."""
        return number >= self.most or (self._own and self._next()[0] > self._rounds)

    def evaluates(self, number: int, every: int) -> bool:
        """True if the model is evaluated after Flower round `number`: at each `every`-th round's end, and the last."""
        if not self._own:
            return number % every == 0 or self.over(number)
        following, iteration = self._next()
        return self.over(number) or (iteration == 1 and (following - 1) % every == 0)

    def _next(self) -> tuple[int, int]:
        return self._method.own_round(self._method.roster)
