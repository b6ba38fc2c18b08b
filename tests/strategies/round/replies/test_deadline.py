"""Straggler handling: deadlines, over-selection, dropouts, and rounds with too few replies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import AggregationConfig, NetworkConfig, ReplyConfig, RunConfig, SharedSettings
from strategies.base import SelectionStrategy
from strategies.methods.random_selection import RandomSelection
from strategies.roster import Selection
from strategies.round.replies.deadline import accept, over_selected_count, simulated_dropouts
from tests.support.contexts import SIZE, context_of
from tests.support.logs import logged
from tests.support.rounds import run_round
from tests.support.stubs import round_of, trio, update_of, update_reply

STILL = NetworkConfig(step_min_s=1.0, step_max_s=1.0, uplink_min_bits_per_s=1e9, uplink_max_bits_per_s=1e9)
"""A second a step and hardly any transfer time: a client takes as many seconds as steps."""


class Fewest(SelectionStrategy):
    """One client, however many are wanted, as a draw with replacement may give."""

    name, paper, exact_cohort = "fewest", "nowhere", False

    def select(self, roster, round_info, count, rng):
        return Selection(roster.ids[:1])


def slow(steps):
    """Fits in which client k takes steps[k] steps."""
    return lambda client, message: update_reply(
        update_of(client), client, round_of(message), work_steps=float(steps[client])
    )


def one_round(steps, **run):
    strategy = RandomSelection(context_of(network=STILL, **run))
    [row], [parameters] = run_round(strategy, trio(slow(steps)))
    return strategy, row, parameters


def test_a_client_that_misses_the_deadline_has_failed_and_the_round_took_that_long():
    strategy, row, parameters = one_round([2, 9, 4], round_deadline_s=5.0)
    assert row["aggregated"] == [0, 2]
    assert [failure["client"] for failure in row["failures"]] == [1]
    assert "deadline is 5 s" in row["failures"][0]["reason"]
    assert row["round_s"] == 5.0
    assert parameters[1] == 0.0
    assert strategy.roster.failures.tolist() == [0, 1, 0]
    assert strategy.roster.last_returned.tolist() == [1, 0, 1]


def test_over_selection_aggregates_the_first_replies_and_ends_the_round():
    strategy, row, _ = one_round([5, 9, 3], cohort=2, over_selection=0.5)
    assert row["selected"] == [0, 1, 2]
    assert row["aggregated"] == [0, 2]
    assert row["unused"] == [1]
    assert row["failures"] == []
    assert row["cohort"] == 2
    assert row["round_s"] == pytest.approx(5.0, abs=1e-3)
    # No failure; but its update was not aggregated, so the client is instructed to take it back.
    assert strategy.roster.failures.tolist() == [0, 0, 0]
    assert strategy.roster.last_selected.tolist() == [1, 1, 1]
    assert strategy.roster.last_returned.tolist() == [1, 0, 1]


def test_over_selection_waits_for_no_more_replies_than_a_method_has_clients():
    strategy = Fewest(
        context_of(network=STILL, cohort=2, over_selection=0.5, round_deadline_s=50.0, max_update_norm=0.0)
    )
    [row], _ = run_round(strategy, trio(slow([5, 9, 3])))
    assert row["aggregated"] == [0]
    assert row["round_s"] == pytest.approx(5.0, abs=1e-3)


def test_too_few_replies_change_nothing_and_their_time_is_spent():
    _, row, parameters = one_round([2, 9, 4], round_deadline_s=5.0, min_returned=3)
    assert row["aggregated"] == []
    assert row["unused"] == [0, 2]
    assert row["round_s"] == 5.0
    np.testing.assert_array_equal(parameters, np.zeros(SIZE))


@pytest.mark.parametrize(("rule", "steps", "told"), [("krum", 9, 1), ("krum", 4, 0), ("median", 9, 1)])
def test_updates_too_few_for_the_rule_are_told(rule, steps, told):
    """Krum with f = 0, and the median, need three updates; the third is late where it is slow."""
    aggregation = AggregationConfig(aggregation=rule, krum_malicious=0)
    with logged() as log:
        one_round([2, steps, 4], round_deadline_s=5.0, aggregation=aggregation)
    said = [
        f"Round 1: only 2 updates came back. With fewer than 3 the 'aggregation' {rule} does not protect against "
        "hostile clients. Set 'min-returned' to 3 to skip such rounds."
    ]
    assert [line for line in log().splitlines() if "came back" in line] == said[:told]


@pytest.mark.parametrize(
    ("wanted", "share", "available", "asked"),
    [(5, 0.0, 9, 5), (5, 0.3, 9, 7), (10, 0.3, 100, 13), (10, 0.1, 100, 11), (5, 9.0, 9, 9), (1, 0.01, 9, 2)],
)
def test_how_many_are_told_to_train(wanted, share, available, asked):
    assert over_selected_count(wanted, share, available) == asked


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 6), st.integers(0, 6), st.integers(1, 6))
def test_accepted_replies_by_brute_force(times, wanted, deadline_s, least):
    clients = np.arange(len(times)) * 2
    limits = ReplyConfig(round_deadline_s=float(deadline_s), min_returned=least)
    accepted, late, waited_s = accept(clients, np.array(times, np.float64), wanted, limits)
    queue = sorted((seconds, client) for client, seconds in zip(clients.tolist(), times, strict=True))
    early = [client for seconds, client in queue if not deadline_s or seconds <= deadline_s]
    expected = sorted(early[:wanted]) if len(early[:wanted]) >= least else []
    assert accepted.tolist() == expected
    assert [failure["client"] for failure in late] == sorted(set(clients.tolist()) - set(early))
    last_s = min(max(times), deadline_s or 6)
    assert waited_s == (0.0 if len(expected) >= wanted else last_s)


def test_replies_are_dropped_as_often_as_set_and_by_the_seed():
    def dropped(server_round, rate=0.1, clients=300):
        settings = SharedSettings(run=RunConfig(seed=5), replies=ReplyConfig(client_failure_rate=rate))
        return simulated_dropouts(np.arange(clients), server_round, settings)

    gone = [dropped(number) for number in range(1, 11)]
    # 3,000 draws: 300 with a standard deviation of 16.
    assert sum(map(len, gone)) == pytest.approx(300, abs=66)
    assert gone[3] == dropped(4)
    assert gone[3] & set(range(100)) == dropped(4, clients=100)
    assert dropped(1, 0.0) == set()
    assert len(dropped(1, 1.0, clients=9)) == 9
