"""Every registered method, under each choice of its settings, keeps the contract."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedsel_app.config import Settings, Value
from strategies import STRATEGIES
from strategies.base import SelectionStrategy
from strategies.methods.power_of_choice import PowerOfChoice
from strategies.roster import Needs, Selection
from strategies.testing import CHECKS, check_method, variants

TELLING = {"selection", "cohort-size", "round-trip"}
"""The clauses that the fast tests put every variant through; the defaults go through all of them."""
SLOW = {("fedcor", "coverage"), ("fedcvr-bolt", "coverage"), ("fedcg", "coverage"), ("optrate", "coverage")}


def cases():
    """Every method under each of its variants x every clause."""
    for name, method in STRATEGIES.items():
        for settings in variants(method):
            label = "-".join([name, *map(str, settings.values())])
            for clause in CHECKS:
                fast = (clause in TELLING and name != "fedcor") if settings else (name, clause) not in SLOW
                marks = [] if fast else [pytest.mark.slow]
                yield pytest.param(method, settings, clause, id=f"{label}-{clause}", marks=marks)


@pytest.mark.parametrize(("method", "settings", "clause"), list(cases()))
def test_every_method_keeps_the_contract(
    method: type[SelectionStrategy], settings: dict[str, Value], clause: str
) -> None:
    CHECKS[clause](method, **settings)


@dataclass(frozen=True)
class OwnConfig(Settings):
    pass


class OwnMethod(SelectionStrategy):
    """Method of a user: clients that waited longest are selected, ties in random order."""

    name, paper, Config = "own", "nowhere", OwnConfig

    @classmethod
    def needs(cls, config):
        return Needs()

    def select(self, roster, round_info, count, rng):
        order = rng.permutation(roster.ids)
        longest = order[np.argsort(roster.last_selected[order], kind="stable")]
        return Selection(np.sort(longest[:count]), np.ones(count))


def test_a_users_method_is_checked_in_one_line() -> None:
    check_method(OwnMethod)


def test_variants_change_one_switch_at_a_time() -> None:
    assert variants(OwnMethod) == [{}]
    assert variants(PowerOfChoice) == [{}, {"variant": "cpow-d"}, {"variant": "rpow-d"}, {"variant": "adapow-d"}]
