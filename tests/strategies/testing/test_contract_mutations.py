"""Faults that public re-implementations have, put into real methods: the contract names the check they fail."""

from dataclasses import replace

import numpy as np
import pytest

from strategies.base import SelectionStrategy
from strategies.methods.active_fl import ActiveFL
from strategies.methods.hetero_select import HeteroSelect
from strategies.methods.power_of_choice import PowerOfChoice
from strategies.methods.random_selection import RandomSelection
from strategies.selection_math.similarity import LastUpdates
from strategies.testing import CHECKS, ContractError


def selecting(base, change):
    """A method like `base`, whose selections go through `change`; it gets the method, the roster, count and rng too."""

    class Mutant(base):
        def select(self, roster, round_info, count, rng):
            return change(super().select(roster, round_info, count, rng), self, roster, count, rng)

    return Mutant


def choosing(choose):
    """Random selection, but of the ids that `choose` returns for the roster, the count and the generator."""
    return selecting(
        RandomSelection, lambda selection, method, *given: replace(selection, clients=np.sort(choose(*given)))
    )


def positions(selection, method, roster, count, rng):
    """Positions inside the list of available clients instead of ids (FLGo's pow-d)."""
    return replace(selection, clients=np.searchsorted(roster.ids, selection.clients))


def counts_in_roster(selection, method, roster, count, rng):
    """Counts a selection in the roster that select was given to read."""
    roster.selections[selection.clients] += 1
    return selection


def remembers(selection, method, roster, count, rng):
    """Changes the method's own state before anything came back."""
    method._diversity[selection.clients] *= 0.5
    return selection


def raw_losses(selection, method, roster, count, rng):
    """Weighs by raw losses, whatever they are."""
    return replace(selection, weights=roster.losses[selection.clients])


class BurntValuations(ActiveFL):
    """Writes -inf over the valuation of who was just selected, for ever."""

    def update(self, outcome):
        super().update(outcome)
        self._valuations[outcome.clients] = -np.inf


class ForgetsOnResume(HeteroSelect):
    """Saves only part of its state."""

    def load_state(self, state):
        super().load_state(state)
        self.last_updates = LastUpdates()


def global_draw(roster, count, rng):
    """Draws from NumPy's global generator."""
    return np.random.choice(roster.ids, count, replace=False)  # noqa: NPY002


def by_losses(roster, count, rng):
    """Takes the largest losses without asking, and paying, for a probe."""
    return roster.ids[np.argsort(-np.nan_to_num(roster.losses[roster.ids]))[:count]]


def largest_alone(roster, count, rng):
    """Unexplored clients are never compared: always the same candidates."""
    return roster.ids[np.argsort(-roster.examples[roster.ids], kind="stable")[:count]]


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (selecting(PowerOfChoice, positions), "selection"),
        (choosing(lambda roster, count, rng: rng.choice(roster.ids, count)), "selection"),
        (choosing(lambda roster, count, rng: roster.ids[: max(count - 1, 1)]), "cohort-size"),
        (choosing(global_draw), "same-seed"),
        (selecting(HeteroSelect, counts_in_roster), "pure-select"),
        (selecting(HeteroSelect, remembers), "pure-select"),
        (choosing(lambda roster, count, rng: roster.ids[:count]), "relabelling"),
        (selecting(HeteroSelect, raw_losses), "losses-unknown"),
        (choosing(by_losses), "selection"),
        (BurntValuations, "state"),
        (ForgetsOnResume, "round-trip"),
        (choosing(largest_alone), "coverage"),
    ],
)
def test_a_mutant_fails_its_check(mutant: type[SelectionStrategy], check: str) -> None:
    with pytest.raises(ContractError, match=f"fails the check '{check}'"):
        CHECKS[check](mutant)
