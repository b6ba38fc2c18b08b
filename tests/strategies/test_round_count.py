"""Rounds of a method's own: what `rounds` counts, the schedules follow and the model is evaluated after."""

import pytest

from strategies.base import SelectionStrategy
from strategies.method import most_rounds
from strategies.roster import Selection
from tests.support.contexts import context_of
from tests.support.rounds import run_rounds
from tests.support.stubs import StubClient, StubFederation, round_of, sends_its_update, trio

LENGTHS = (2, 1, 3)
"""Iterations of the method's rounds 1, 2 and 3."""


class Iterated(SelectionStrategy):
    """Everybody in every iteration; without client 2 a round has one."""

    name, paper = "iterated", "nowhere"
    state_fields = ("_round", "_iteration")

    def __init__(self, context):
        super().__init__(context)
        self._round, self._iteration = 1, 0

    @classmethod
    def most_iterations(cls, config):
        return max(LENGTHS)

    def own_round(self, roster):
        again = roster.available[2] or not self._iteration
        if again and self._iteration < LENGTHS[min(self._round, 3) - 1]:
            return self._round, self._iteration + 1
        return self._round + 1, 1

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids)

    def update(self, outcome):
        self._round, self._iteration = outcome.round_info.method_round, outcome.round_info.iteration


def run(stubs, **settings):
    strategy = Iterated(context_of(rounds=3, **settings))
    return strategy, *run_rounds(strategy, stubs, most_rounds(strategy))


def test_rounds_and_the_learning_rate_count_the_methods_own():
    stubs = trio()
    strategy, rows, _ = run(stubs, lr=0.4, lr_decay=0.0, lr_step_rounds=1)
    assert most_rounds(strategy) == 9
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["method_round"] for row in rows] == [1, 1, 2, 3, 3, 3]
    assert [row["iteration"] for row in rows] == [1, 2, 1, 1, 2, 3]
    assert strategy.context.recorder.finished == 1
    # The model is evaluated at the ends of the method's rounds.
    assert [row["round"] for row in rows if "accuracy" in row] == [2, 3, 6]
    sent = stubs[0].told("train")
    assert [instruction.learning_rate for instruction in sent] == pytest.approx([0.4, 0.4, 0.2, 0.1, 0.1, 0.1])
    assert [instruction.server_round for instruction in sent] == [1, 2, 3, 4, 5, 6]


def test_eval_every_counts_the_methods_rounds_and_the_last_is_evaluated():
    _, rows, _ = run(trio(), eval_every=2)
    assert [row["round"] for row in rows if "accuracy" in row] == [3, 6]


def test_a_last_round_that_cannot_go_on_ends_the_run_with_its_evaluation():
    """Client 2 leaves in round 3's first iteration: round 4 would begin, and there is none."""
    stubs, left = trio(), []

    def leaves(client, message):
        if round_of(message) == 4:
            left.append(client)
            federation.leave(stubs[2])
        return sends_its_update(client, message)

    stubs[0] = StubClient(0, leaves, examples=10)
    federation = StubFederation(stubs)
    strategy = Iterated(context_of(rounds=3))
    rows, _ = run_rounds(strategy, federation, 9)
    assert left == [0]
    assert [(row["round"], row["method_round"]) for row in rows] == [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)]
    assert [row["round"] for row in rows if "accuracy" in row] == [2, 3, 5]
    assert not rows[-1]["selected"]
    assert rows[-1]["time_s"] == rows[-2]["time_s"] > 0
    assert strategy.context.recorder.finished == 1


def test_a_resumed_run_goes_on_within_the_methods_round():
    whole = Iterated(context_of(rounds=3, checkpoint_every=1))
    rows, _ = run_rounds(whole, trio(), 5)
    resumed = Iterated(context_of(rounds=3, checkpoint_every=1))
    resumed.restore(whole.context.recorder.saved)
    assert resumed.run.completed == 5
    rows, _ = run_rounds(resumed, trio(), most_rounds(resumed) - resumed.run.completed)
    assert [(row["round"], row["method_round"], row["iteration"]) for row in rows] == [(6, 3, 3)]
    assert resumed.context.recorder.finished == 1
