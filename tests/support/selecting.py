"""Selections of a method, with checks that they are pure and well formed."""

import numpy as np
from numpy.typing import NDArray

from strategies.base import SelectionStrategy
from strategies.roster import Roster, RoundInfo, Selection
from strategies.testing.checked_method import copied, demand_same


def select(method: SelectionStrategy, roster: Roster, number: int, count: int, seed: int = 0) -> Selection:
    """A selection, after a check that it is well formed and changed neither the roster nor the method."""
    before, state = copied(vars(roster)), copied(method.state())
    selection = method.select(roster, RoundInfo(number, 10), count, np.random.default_rng(seed))
    demand_same(vars(roster), before, "'select' must not change the roster.")
    demand_same(method.state(), state, "'select' must not change the method's state.")
    assert (np.diff(selection.clients) > 0).all()
    assert np.isin(selection.clients, roster.ids).all()
    weights = selection.scores if selection.weights is None else selection.weights
    for array in (selection.scores, weights, *selection.components.values()):
        assert array.shape == selection.clients.shape
        assert np.isfinite(array).all()
    assert (weights >= 0).all()
    assert weights.sum() > 0
    return selection


def selections(method: SelectionStrategy, roster: Roster, number: int, count: int, times: int) -> list[Selection]:
    """Selections of the seeds 0 ... `times` - 1; the first is checked as in `select`."""
    first = select(method, roster, number, count)
    draws = (np.random.default_rng(seed) for seed in range(1, times))
    return [first, *(method.select(roster, RoundInfo(number, 10), count, draw) for draw in draws)]


def frequencies(method: SelectionStrategy, roster: Roster, number: int, count: int, times: int) -> NDArray[np.float64]:
    """Share of the `selections` with each client, float64 (K,)."""
    drawn = [selection.clients for selection in selections(method, roster, number, count, times)]
    return np.bincount(np.concatenate(drawn), minlength=roster.available.size) / times
