"""Interface of a method: its defaults, its settings, and the fields that a checkpoint keeps."""

from dataclasses import dataclass

import numpy as np
import pytest

from fedsel_app.config import ConfigError, Settings, setting
from strategies.base import SelectionStrategy
from strategies.roster import Needs, RoundInfo, Selection
from strategies.testing.fakes import make_context
from tests.support.contexts import make_roster


@dataclass(frozen=True)
class PairConfig(Settings):
    """Settings of a method."""

    odd: bool = setting(False, "odd ids in place of even ones")


class Pair(SelectionStrategy[PairConfig]):
    name, paper = "pair", "nowhere"
    state_fields = ("_counts", "_seen", "rounds", "_share")

    def __init__(self, context):
        super().__init__(context)
        self._counts = np.zeros(context.run.clients, np.int64)
        self._seen = np.zeros((0, 2))
        self.rounds, self._share = 0, 0.5

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[self.config.odd :: 2][:count], np.ones(count))

    @classmethod
    def check_settings(cls, config, shared):
        if config.odd and shared.run.cohort > 2:
            raise ConfigError("Too many.")


class Bare(SelectionStrategy):
    name, paper = "bare", "nowhere"

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:count], np.ones(count))


def build(**settings):
    return Pair(make_context(PairConfig(**settings), clients=6))


def test_a_method_that_only_selects_has_no_settings_needs_nothing_and_keeps_nothing():
    method, roster = Bare(make_context(Settings())), make_roster(6, available=[1, 4])
    assert Bare.Config is Settings
    assert Bare.needs(Settings()) == Needs()
    assert method.state() == {}
    assert method.candidates(roster, RoundInfo(1, 2), 1, np.random.default_rng(0)).tolist() == [1, 4]


def test_the_type_argument_is_the_methods_settings():
    assert Pair.Config is PairConfig
    assert build(odd=True).config.odd
    with pytest.raises(TypeError, match=r"^pair takes a PairConfig\. Got Settings\.$"):
        Pair(make_context(Settings()))


def test_settings_are_checked_when_the_method_is_built():
    with pytest.raises(ConfigError, match="Too many"):
        Pair(make_context(PairConfig(odd=True), clients=6, cohort=3))


def test_the_fields_go_on_and_are_no_views():
    method, again = build(), build()
    method._counts += 3
    method._seen, method.rounds, method._share = np.ones((4, 2)), 7, 0.25
    state = method.state()
    assert sorted(state) == ["counts", "rounds", "seen", "share"]
    method._counts += 1
    again.load_state(state)
    state["counts"][:] = 0
    assert again._counts.tolist() == [3] * 6
    assert again._seen.tolist() == [[1, 1]] * 4
    assert (again.rounds, again._share) == (7, 0.25)
    assert [type(value) for value in (again.rounds, again._share)] == [int, float]


@pytest.mark.parametrize(
    ("name", "wrong"), [("counts", np.zeros(5, np.int64)), ("counts", np.zeros(6)), ("seen", np.zeros((4, 3)))]
)
def test_fields_of_another_run_are_refused(name, wrong):
    with pytest.raises(ConfigError, match=f"its '{name}' should be"):
        build().load_state(build().state() | {name: wrong})
    with pytest.raises(ConfigError, match=f"its '{name}' .* is nothing"):
        build().load_state({}) if name == "counts" else build().load_state({"counts": np.zeros(6, np.int64)})
