"""Checks that a method is pure in `select`, and goes on identically from its saved state."""

from collections.abc import Callable, Sequence

import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Outcome, Roster, RoundInfo, Selection
from strategies.testing.checked_method import copied, require_same


def select(method: SelectionStrategy, roster: Roster, number: int, count: int, seed: int = 0) -> Selection:
    """A selection, after checking that neither roster nor method changed by it and that it is well formed."""
    before, state = copied(vars(roster)), copied(method.state())
    selection = method.select(roster, RoundInfo(number, 10), count, np.random.default_rng(seed))
    require_same(vars(roster), before, "'select' must not change the roster.")
    require_same(method.state(), state, "'select' must not change the method's state.")
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
    """Those of the seeds 0 ... `times` - 1, to count; the first of them is checked as `select` checks."""
    first = select(method, roster, number, count)
    draws = (np.random.default_rng(seed) for seed in range(1, times))
    return [first, *(method.select(roster, RoundInfo(number, 10), count, draw) for draw in draws)]


def assert_resumes(
    build: Callable[[], SelectionStrategy], rosters: Sequence[Roster], outcomes: Sequence[Outcome], count: int
) -> None:
    """Saving and loading between any two rounds changes nothing that follows. `rosters` are those of the rounds."""
    whole = build()
    for cut in range(len(outcomes)):
        whole.roster = rosters[cut]
        whole.learn(outcomes[cut])
        resumed = build()
        resumed.load_state(copied(whole.state()))
        require_same(resumed.state(), whole.state(), "a loaded state must be the one saved.")
        number = outcomes[cut].round_info.number + 1
        ours, theirs = (select(method, rosters[cut], number, count) for method in (whole, resumed))
        np.testing.assert_array_equal(ours.clients, theirs.clients)
        if cut + 1 < len(outcomes):
            resumed.roster = rosters[cut + 1]
            resumed.learn(outcomes[cut + 1])
            other = build()
            other.load_state(whole.state())
            other.roster = rosters[cut + 1]
            other.learn(outcomes[cut + 1])
            require_same(resumed.state(), other.state(), "resumed, it learns otherwise.")
