"""Every registered method, under each choice of its settings, keeps the contract."""

import numpy as np
import pytest

from fedsel_app.config import Value
from strategies import STRATEGIES, Needs
from strategies.base import SelectionStrategy
from strategies.methods.power_of_choice import PowerOfChoice
from strategies.roster import Selection
from strategies.testing import CHECKS, check_method, variants

TELLING = {"cohort-size", "round-trip"}
"""Checks that the fast tests put every variant through, both of which check selections; the defaults go through all."""
SLOW = {("fedcor", "coverage"), ("fedcvr-bolt", "coverage"), ("fedcg", "coverage"), ("optrate", "coverage")}


def cases():
    """Every method under each of its variants x every check."""
    for name, method in STRATEGIES.items():
        for settings in variants(method):
            label = "-".join([name, *map(str, settings.values())])
            for check in CHECKS:
                fast = (check in TELLING and name != "fedcor") if settings else (name, check) not in SLOW
                marks = [] if fast else [pytest.mark.slow]
                yield pytest.param(method, settings, check, id=f"{label}-{check}", marks=marks)


@pytest.mark.parametrize(("method", "settings", "check"), list(cases()))
def test_every_method_keeps_the_contract(
    method: type[SelectionStrategy], settings: dict[str, Value], check: str
) -> None:
    CHECKS[check](method, **settings)


class OwnMethod(SelectionStrategy):
    """Method of a user: clients that waited longest are selected, ties in random order."""

    name, paper = "own", "nowhere"

    def select(self, roster, round_info, count, rng):
        order = rng.permutation(roster.ids)
        longest = order[np.argsort(roster.last_selected[order], kind="stable")]
        return Selection(np.sort(longest[:count]))


def test_a_users_method_is_checked_in_one_line() -> None:
    check_method(OwnMethod)


class LossTimesWait(SelectionStrategy):
    """Method of a user whose product overflows for the largest losses: to an infinite value, which ranks first."""

    name, paper = "own", "nowhere"

    @classmethod
    def needs(cls, config):
        return Needs(loss_probe=True)

    def select(self, roster, round_info, count, rng):
        value = roster.losses[roster.ids] * (round_info.number - roster.last_selected[roster.ids]) ** 2
        return Selection(np.sort(roster.ids[np.argsort(-value, kind="stable")[:count]]))


def test_a_product_of_losses_may_overflow() -> None:
    CHECKS["losses-mixed"](LossTimesWait)


def test_variants_change_one_switch_at_a_time() -> None:
    assert variants(OwnMethod) == [{}]
    assert variants(PowerOfChoice) == [{}, {"variant": "rpow-d"}, {"loss": "test"}]
