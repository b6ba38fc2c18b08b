"""Participation schedules: the number of clients by hand, and that the round follows it."""

from dataclasses import replace

from fedsel_app.config import ParticipationConfig
from strategies.methods.random_selection import RandomSelection
from strategies.participation import linear_growth, scheduled
from strategies.roster import RoundInfo
from tests.support.contexts import context_of
from tests.support.rounds import run_rounds
from tests.support.stubs import StubClient


def counts(policy, total, cohort=20, clients=100, **settings):
    config = ParticipationConfig(participation=policy, **settings)
    return [scheduled(config, RoundInfo(number, total), cohort, clients) for number in range(1, total + 1)]


def test_adafl_econom_is_the_authors_codes_vector():
    found = [linear_growth(t - 12, 5, 20, 40.0) for t in (0, 12, 13, 32, 33, 52, 72, 92, 612)]
    assert found == [5, 5, 5, 6, 6, 6, 6, 7, 20]
    schedule = counts("adafl-econom", 700)
    assert [schedule[t - 1] for t in (12, 13, 32, 33, 52, 72, 92, 612, 700)] == [5, 5, 6, 6, 6, 6, 7, 20, 20]
    assert counts("adafl-econom", 6, growth_first=2, growth_last=4, growth_every=1.0, growth_warmup=2) == [
        *(2, 2),
        *(3, 4, 4, 4),
    ]


def test_adafl_full_goes_from_ten_to_everybody_in_the_last_round():
    assert counts("adafl-full", 4, clients=40) == [10, 20, 30, 40]
    schedule = counts("adafl-full", 91)
    assert schedule == list(range(10, 101))
    assert counts("adafl-full", 5, clients=6) == [6] * 5
    assert counts("adafl-full", 1) == [10]


def test_fixed_is_the_cohort():
    assert counts("fixed", 3) == [20] * 3


def test_a_round_selects_as_many_as_the_schedule_says_and_writes_it_down():
    settings = {"growth_first": 1, "growth_last": 3, "growth_every": 1.0, "growth_warmup": 1}
    policy = ParticipationConfig(participation="adafl-econom", **settings)
    strategy = RandomSelection(
        replace(context_of(clients=4, cohort=2, rounds=4, max_update_norm=0.0), participation=policy)
    )
    rows, _ = run_rounds(strategy, [StubClient(client) for client in range(4)], 4)
    assert [row["cohort"] for row in rows] == [len(row["selected"]) for row in rows] == [1, 2, 3, 3]
    assert [row["client_updates"] for row in rows] == [1, 2, 3, 3]
    assert not any("search" in row for row in rows)
