"""Whether a method is pure in `select`, and goes on identically from its saved state."""

from collections.abc import Callable, Sequence

import numpy as np

from strategies.base import SelectionStrategy
from strategies.roster import Outcome, Roster, Round, Selection


def select(method: SelectionStrategy, roster: Roster, number: int, count: int, seed: int = 0) -> Selection:
    """A selection, after checking that neither roster nor method changed by it and that it is well formed."""
    before = {name: array.copy() for name, array in vars(roster).items()}
    state = {name: array.copy() for name, array in method.state().items()}
    selection = method.select(roster, Round(number, 10), count, np.random.default_rng(seed))
    for name, array in vars(roster).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    assert_same_state(method.state(), state)
    assert (np.diff(selection.clients) > 0).all()
    assert np.isin(selection.clients, roster.ids).all()
    weights = selection.scores if selection.weights is None else selection.weights
    for array in (selection.scores, weights, *selection.components.values()):
        assert array.shape == selection.clients.shape
        assert np.isfinite(array).all()
    assert (weights >= 0).all()
    assert weights.sum() > 0
    return selection


def assert_same_state(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def assert_resumes(
    build: Callable[[], SelectionStrategy], rosters: Sequence[Roster], outcomes: Sequence[Outcome], count: int
) -> None:
    """Saving and loading between any two rounds changes nothing that follows. `rosters` are those of the rounds."""
    whole = build()
    for cut in range(len(outcomes)):
        whole.roster = rosters[cut]
        whole.absorb(outcomes[cut])
        resumed = build()
        resumed.load_state({name: array.copy() for name, array in whole.state().items()})
        assert_same_state(resumed.state(), whole.state())
        number = outcomes[cut].now.number + 1
        ours, theirs = (select(method, rosters[cut], number, count) for method in (whole, resumed))
        np.testing.assert_array_equal(ours.clients, theirs.clients)
        if cut + 1 < len(outcomes):
            resumed.roster = rosters[cut + 1]
            resumed.absorb(outcomes[cut + 1])
            other = build()
            other.load_state(whole.state())
            other.roster = rosters[cut + 1]
            other.absorb(outcomes[cut + 1])
            assert_same_state(resumed.state(), other.state())
