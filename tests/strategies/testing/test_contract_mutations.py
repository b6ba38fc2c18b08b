"""Faults that public re-implementations have, put into real methods: the contract names the check they fail."""

from dataclasses import replace

import numpy as np
import pytest

from strategies.base import SelectionStrategy
from strategies.last_updates import LastUpdates
from strategies.methods.active_fl import ActiveFL
from strategies.methods.hetero_select import HeteroSelect
from strategies.methods.power_of_choice import PowerOfChoice
from strategies.methods.random_selection import RandomSelection
from strategies.testing import CHECKS, ContractError


class CandidatePositions(PowerOfChoice):
    """Positions inside the list of available clients instead of ids (FLGo's pow-d)."""

    def select(self, roster, round_info, count, rng):
        selection = super().select(roster, round_info, count, rng)
        return replace(selection, clients=np.searchsorted(roster.ids, selection.clients))


class Duplicates(RandomSelection):
    """Draws with replacement where distinct clients are expected."""

    def select(self, roster, round_info, count, rng):
        selection = super().select(roster, round_info, count, rng)
        return replace(selection, clients=np.sort(rng.choice(roster.ids, count)))


class CountsInSelect(HeteroSelect):
    """Counts a selection in the roster that select was given to read."""

    def select(self, roster, round_info, count, rng):
        selection = super().select(roster, round_info, count, rng)
        roster.selections[selection.clients] += 1
        return selection


class RemembersInSelect(HeteroSelect):
    """Changes the method's own state before anything came back."""

    def select(self, roster, round_info, count, rng):
        selection = super().select(roster, round_info, count, rng)
        self._diversity[selection.clients] *= 0.5
        return selection


class BurntValuations(ActiveFL):
    """Writes -inf over the valuation of who was just selected, for ever."""

    def update(self, outcome):
        super().update(outcome)
        self._valuations[outcome.clients] = -np.inf


class GlobalGenerator(RandomSelection):
    """Draws from NumPy's global generator."""

    def select(self, roster, round_info, count, rng):
        return super().select(roster, round_info, count, np.random)


class FirstIds(RandomSelection):
    """Prefers low ids."""

    def select(self, roster, round_info, count, rng):
        return replace(super().select(roster, round_info, count, rng), clients=roster.ids[:count])


class LargestLossesOnly(PowerOfChoice):
    """Unexplored clients are never compared: always the same candidates."""

    explores = True

    def candidates(self, roster, round_info, count, rng):
        return roster.ids

    def select(self, roster, round_info, count, rng):
        selection = super().select(roster, round_info, count, rng)
        chosen = np.sort(roster.ids[np.argsort(-roster.examples[roster.ids], kind="stable")[:count]])
        return replace(selection, clients=chosen)


class ForgetsOnResume(HeteroSelect):
    """Saves only part of its state."""

    def load_state(self, state):
        super().load_state(state)
        self.last_updates = LastUpdates()


class UndeclaredKnowledge(RandomSelection):
    """Takes the largest losses without asking, and paying, for a probe."""

    def select(self, roster, round_info, count, rng):
        order = np.argsort(-np.nan_to_num(roster.losses[roster.ids]), kind="stable")
        return replace(super().select(roster, round_info, count, rng), clients=np.sort(roster.ids[order[:count]]))


class UnguardedLoss(HeteroSelect):
    """Weighs by raw losses, whatever they are."""

    def select(self, roster, round_info, count, rng):
        selection = super().select(roster, round_info, count, rng)
        return replace(selection, weights=roster.losses[selection.clients])


class OneShort(RandomSelection):
    """Selects one fewer than asked."""

    def select(self, roster, round_info, count, rng):
        return super().select(roster, round_info, max(count - 1, 1), rng)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (CandidatePositions, "selection"),
        (Duplicates, "selection"),
        (OneShort, "cohort-size"),
        (GlobalGenerator, "same-seed"),
        (CountsInSelect, "pure-select"),
        (RemembersInSelect, "pure-select"),
        (FirstIds, "relabelling"),
        (UnguardedLoss, "losses-unknown"),
        (UndeclaredKnowledge, "selection"),
        (BurntValuations, "state"),
        (ForgetsOnResume, "round-trip"),
        (LargestLossesOnly, "coverage"),
    ],
)
def test_a_mutant_fails_its_check(mutant: type[SelectionStrategy], check: str) -> None:
    with pytest.raises(ContractError, match=f"fails the check '{check}'"):
        CHECKS[check](mutant)
