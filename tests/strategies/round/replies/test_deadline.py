"""Straggler handling: deadlines, over-selection, dropouts, and rounds with too few replies."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from flwr.common import Code, Status
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import AggregationConfig, NetworkConfig, ReplyConfig, RunConfig, SharedSettings
from fedsel_app.network.links import MeasuredLinks
from strategies.methods.random_selection import RandomSelection
from strategies.round.replies.deadline import accept, over_selected_count, simulated_dropouts
from tests.support.contexts import SIZE, context_of
from tests.support.logs import logged
from tests.support.proxies import (
    StubProxy,
    manager_of,
    round_of,
    sends_its_update,
    trio,
    update_of,
    update_reply,
)
from tests.support.rounds import run_round, run_rounds, without_wall

STILL = NetworkConfig(step_min_s=1.0, step_max_s=1.0, uplink_min_bits_per_s=1e9, uplink_max_bits_per_s=1e9)
"""A second a step and hardly any transfer time: a client takes as many seconds as steps."""


def slow(steps):
    """Fits in which client k takes steps[k] steps."""
    return lambda client, ins: update_reply(update_of(client), client, round_of(ins), work_steps=float(steps[client]))


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


def test_a_deadline_that_all_make_changes_nothing():
    _, row, parameters = one_round([2, 3, 4], round_deadline_s=5.0)
    _, without, same = one_round([2, 3, 4])
    assert without_wall([row]) == without_wall([without])
    np.testing.assert_array_equal(parameters, same)


def test_a_dropped_client_costs_the_deadline_where_there_is_one():
    def fit(client, ins):
        return ValueError("gone") if client == 0 else slow([2, 3, 4])(client, ins)

    for deadline_s, seconds in ((0.0, 4.0), (30.0, 30.0)):
        strategy = RandomSelection(context_of(network=STILL, round_deadline_s=deadline_s))
        [row], _ = run_round(strategy, trio(fit))
        assert row["round_s"] == pytest.approx(seconds, abs=1e-3)


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


def test_over_selection_makes_up_for_a_failure():
    def fit(client, ins):
        return ValueError("gone") if client == 2 else slow([5, 9, 3])(client, ins)

    strategy = RandomSelection(context_of(network=STILL, cohort=2, over_selection=0.5, round_deadline_s=50.0))
    [row], _ = run_round(strategy, trio(fit))
    assert row["aggregated"] == [0, 1]
    assert row["round_s"] == pytest.approx(9.0, abs=1e-3)


def test_too_few_replies_change_nothing_and_their_time_is_spent():
    _, row, parameters = one_round([2, 9, 4], round_deadline_s=5.0, min_returned=3)
    assert row["aggregated"] == []
    assert row["unused"] == [0, 2]
    assert row["round_s"] == 5.0
    np.testing.assert_array_equal(parameters, np.zeros(SIZE))


@pytest.mark.parametrize(("rule", "steps", "told"), [("krum", 9, 1), ("krum", 4, 0), ("median", 9, 0)])
def test_updates_too_few_for_the_rule_are_told(rule, steps, told):
    """Krum withstands no hostile client (f = 0) among fewer than three updates; the third is late where it is slow."""
    aggregation = AggregationConfig(aggregation=rule, krum_malicious=0)
    with logged() as log:
        one_round([2, steps, 4], round_deadline_s=5.0, aggregation=aggregation)
    said = [
        "Round 1: only 2 updates came back. With fewer than 3 the 'aggregation' krum does not protect against hostile "
        "clients ('krum-malicious' is 0). Set 'min-returned' to 3 to skip such rounds."
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
    assert waited_s == (0.0 if len(expected) >= wanted else deadline_s or max(times))


def test_replies_are_dropped_as_often_as_set_and_by_the_seed():
    def dropped(server_round, rate=0.1, clients=1000):
        settings = SharedSettings(run=RunConfig(seed=5), replies=ReplyConfig(client_failure_rate=rate))
        return simulated_dropouts(np.arange(clients), server_round, settings)

    gone = [dropped(number) for number in range(1, 11)]
    # 10,000 draws: 1,000 with a standard deviation of 30.
    assert sum(map(len, gone)) == pytest.approx(1000, abs=120)
    assert gone[3] == dropped(4)
    assert gone[3] & set(range(100)) == dropped(4, clients=100)
    assert dropped(1, 0.0) == set()
    assert len(dropped(1, 1.0, clients=9)) == 9


def test_a_dropped_reply_is_a_failure_of_its_round_alone():
    strategy = RandomSelection(context_of(rounds=20, client_failure_rate=0.3))
    rows, _ = run_rounds(strategy, manager_of(trio()), 20)
    failed = [[failure["client"] for failure in row["failures"]] for row in rows]
    assert 5 < sum(map(len, failed)) < 31
    assert all(sorted([*row["aggregated"], *gone]) == [0, 1, 2] for row, gone in zip(rows, failed, strict=True))
    assert strategy.roster.failures.sum() == sum(map(len, failed))


class Sluggish(StubProxy):
    """Answers a fit once the test lets it; remembers the timeouts that it was given."""

    def __init__(self, client):
        super().__init__(client, sends_its_update)
        self.ready, self.timeouts = threading.Event(), []

    def fit(self, ins, timeout, group_id):
        self.timeouts.append(timeout)
        self.ready.wait(20)
        return super().fit(ins, timeout, group_id)


def measured(**run):
    return replace(context_of(**run), links=MeasuredLinks(NetworkConfig(), 3))


def test_nobody_waits_beyond_a_real_deadline():
    strategy = RandomSelection(measured(round_deadline_s=0.4))
    proxies = [*trio()[:2], Sluggish(2)]
    began = time.monotonic()
    [row], _ = run_round(strategy, proxies)
    proxies[2].ready.set()
    assert 0.4 <= time.monotonic() - began < 3.0
    assert row["aggregated"] == [0, 1]
    assert [failure["client"] for failure in row["failures"]] == [2]
    assert 0.0 < proxies[2].timeouts[0] <= 0.4


def test_nobody_waits_for_the_slowest_of_those_over_selected():
    strategy = RandomSelection(measured(cohort=2, over_selection=0.5))
    proxies = [*trio()[:2], Sluggish(2)]
    began = time.monotonic()
    [row], _ = run_round(strategy, proxies)
    proxies[2].ready.set()
    assert time.monotonic() - began < 3.0
    assert row["selected"] == [0, 1, 2]
    assert row["aggregated"] == [0, 1]


def test_who_joins_later_with_a_wrong_number_is_refused_and_the_run_goes_on():
    proxies = trio()
    manager = manager_of(proxies)
    strategy = RandomSelection(context_of(rounds=3))
    stranger = StubProxy(7, sends_its_update, cid="stranger")
    again = StubProxy(1, sends_its_update, cid="again")

    def join(number):
        if number == 2:
            manager.register(stranger)
            manager.register(again)

    rows, _ = run_rounds(strategy, manager, 3, join)
    assert [row["aggregated"] for row in rows] == [[0, 1, 2]] * 3
    # Each was asked once who it is, and then left alone; of two client 1 the first one is meant.
    assert [kind for kind, _ in stranger.asked] == ["properties"]
    assert [kind for kind, _ in again.asked] == ["properties"]
    assert [kind for kind, _ in proxies[1].asked] == ["properties", "fit", "fit", "fit"]


def test_a_bad_status_is_an_answer_that_failed(no_waiting):
    strategy = RandomSelection(context_of(connect_timeout_s=1))
    proxies = trio()
    told_so = proxies[1].get_properties

    def refusing(ins, timeout, group_id):
        return replace(told_so(ins, timeout, group_id), status=Status(Code.GET_PROPERTIES_NOT_IMPLEMENTED, "not here"))

    proxies[1].get_properties = refusing
    [row], _ = run_round(strategy, proxies)
    assert row["selected"] == [0, 2]
    [claim] = [line for line in strategy.context.recorder.client_rows if "outcome" in line]
    assert (claim["node"], "not here" in claim["outcome"]) == ("1", True)
