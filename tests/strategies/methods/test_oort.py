"""Oort: a plain-Python reference of the rule, and its traps."""

from math import log, sqrt

import numpy as np
import pytest

from fedsel_app.messages.scalars import Report
from fedsel_app.wire.rounded_values import BLOCK
from strategies.methods.oort import Oort, OortConfig, at_percentile, blacklist, next_pace, system_factor
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select

NAN = np.nan


def build(clients=6, rounds=100, **settings):
    return Oort(make_context(OortConfig(**settings), clients=clients, cohort=min(2, clients), rounds=rounds, size=2))


def timed_roster(durations, **arguments):
    """Rounds of these lengths in seconds: transfers take no time."""
    roster = make_roster(len(durations), **arguments)
    roster.local_steps[:] = 100
    roster.step_s[:] = np.asarray(durations) / 100
    roster.uplink_bits_per_s[:] = 1e18
    return roster


def tried(method, utilities, last):
    clients = len(utilities)
    padded = {"utilities": np.array(utilities, float), "last": np.array(last, np.int64)}
    method.load_state(method.state() | padded)
    assert method.state()["utilities"].size == clients
    return method


def outcome_of(number, clients, losses, failed=()):
    reports = {Report.RMS_LOSS: np.array(losses, float)}
    updates = [dense([0.0, 0.0])] * len(clients)
    return outcome(RoundInfo(number, 100), clients, updates, reports=reports, failed=failed)


DRAWS = 1000
FOUR_SIGMA = 4 * sqrt(0.25 / DRAWS)


def assert_chosen(method, roster, number, expected):
    """The frequencies of the one client selected are the `expected`; four standard errors are hardly chance."""
    round_info, rng, found = RoundInfo(number, 100), np.random.default_rng(number), np.zeros(method.context.run.clients)
    for _ in range(DRAWS):
        found[method.select(roster, round_info, 1, rng).clients] += 1
    np.testing.assert_allclose(found / DRAWS, expected, rtol=0, atol=FOUR_SIGMA)


def test_rounds_of_less_than_a_second_have_their_own_factor():
    np.testing.assert_allclose(system_factor(np.array([0.5, 0.25, 0.1]), 0.25, 2.0), [0.25, 1.0, 1.0])


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.99, 3.0), (1.0, 3.0)])
def test_the_highest_percentile_is_the_largest_value(share, expected):
    assert at_percentile(np.array([3.0, 1.0, 2.0]), share) == expected


def reference(rewards, stamps, durations, number):
    """P(the one exploited client) where all clients were tried; T is 30 s, and no reward is above the percentile."""
    total = []
    for reward, stamp, duration in zip(rewards, stamps, durations, strict=True):
        value = reward + sqrt(0.1 * log(number) / stamp)
        total.append(value * (30.0 / duration) ** 2 if duration > 30.0 else value)
    pool = [value if value >= 0.95 * max(total) else 0.0 for value in total]
    return [value / sum(pool) for value in pool]


def test_exploitation_equals_the_plain_rule():
    """The mean client needs 100 steps of .3 s. The third client's 60 counts 60 (30 / 42)^2; the fifth is too bad."""
    rewards, stamps, durations = [30.0, 31.0, 60.0, 30.5, 5.0], [1, 5, 9, 2, 10], [12.0, 30.0, 42.0, 18.0, 24.0]
    method, roster = tried(build(5), rewards, stamps), timed_roster(durations)
    assert method.durations(roster, RoundInfo(11, 100))[1] == pytest.approx(30.0, rel=1e-4)
    assert_chosen(method, roster, 11, reference(rewards, stamps, durations, 11))


def test_utilities_are_capped_at_their_95th_percentile():
    """Of 40 utilities the largest counts as the second, so that the best three are drawn alike for one place."""
    method = tried(build(40), [1.0] * 37 + [10.0, 10.0, 1e9], [9] * 40)
    assert_chosen(method, timed_roster([1.0] * 40), 10, [0] * 37 + [1 / 3] * 3)


def test_exploration_is_by_speed_from_the_first_round_on():
    assert_chosen(build(3), timed_roster([1.0, 2.0, 4.0]), 1, [4 / 7, 2 / 7, 1 / 7])


@pytest.mark.parametrize(("number", "exploited"), [(2, 1), (30, 4), (90, 8)])
def test_exploration_decays(number, exploited):
    """m = 10: 0.9 x 0.98 explore in round 2, 0.9 x 0.98^29 = 0.501 in round 30, and never less than 0.2."""
    values = np.full(40, NAN)
    values[:20] = 50.0
    method = tried(build(40), values, [1] * 20 + [0] * 20)
    picked = select(method, timed_roster([1.0] * 40), number, 10).clients
    assert (picked < 20).sum() == exploited


def test_where_all_are_tried_nothing_is_explored():
    """The two best, whose scores stand out, are exploited: at the marginal score the cutoff admits no third."""
    method = tried(build(4), [1.0, 100.0, 100.0, 1.0], [9, 9, 9, 9])
    picked = {tuple(select(method, timed_roster([1.0] * 4), 10, 2, seed).clients) for seed in range(20)}
    assert picked == {(1, 2)}


# Feedback -----------------------------------------------------------------------------------------------------


def test_utility_is_the_trained_examples_times_the_root_mean_square_loss():
    """50 steps of 32 train at most 1600 examples. Who failed takes the mean."""
    method = build(4)
    method.whole_roster = make_roster(4, examples=[100, 5000, 300, 7])
    method.update(outcome_of(3, [0, 1], [2.0, 0.5], failed=[3]))
    state = method.state()
    np.testing.assert_allclose(state["utilities"], [200, 800, NAN, 500])
    assert state["last"].tolist() == [3, 3, 0, 3]


def test_the_pacer_relaxes_when_the_utility_achieved_falls():
    """Every 20 rounds it compares the last 20 with the 20 before."""
    assert next_pace(np.array([3.0, 3, 2, 3]), 1.0) == 2.0
    assert next_pace(np.array([3.0, 3, 3, 3]), 1.0) == 1.0
    method, paces = build(2), []
    method.whole_roster = make_roster(2)
    seconds = method.durations(timed_roster([1.0, 2.0]), RoundInfo(90, 100))[1]
    for number, loss in enumerate(np.repeat([5, 4, 9, 1], 20).tolist(), start=1):
        method.update(outcome_of(number, [0], [loss]))
        paces.append(method.durations(timed_roster([1.0, 2.0]), RoundInfo(90, 100))[1] / seconds)
    assert paces == [1] * 39 + [2] * 40 + [3]


def test_the_preferred_duration_is_a_mean_clients():
    method = build(2)
    links, roster = method.context.links, make_roster(2)
    bits = 32 * 2 * 1.0  # a dense warm-up round of 2 parameters
    expected = 50 * links.mean_step_s + bits / links.mean_uplink_bits_per_s
    durations, preferred = method.durations(roster, RoundInfo(1, 100))
    assert preferred == pytest.approx(expected)
    np.testing.assert_allclose(durations, 50 * 0.3 + bits / 3e6)


@pytest.mark.parametrize(
    ("settings", "bits"),
    [
        ({"compressor": "qsgd", "kept_fraction": 0.3}, 32 * 2),  # all entries are sent, whatever the kept fraction
        ({"compressor": "none", "value_bits": 16}, 2 * (16 + 32 / BLOCK)),  # a block has a norm of 32 bits
    ],
)
def test_an_upload_has_the_entries_and_the_bits_that_are_sent(settings, bits):
    context = make_context(OortConfig(), size=2, rounds=100, **settings)
    durations, _ = Oort(context).durations(make_roster(), RoundInfo(50, 100))
    np.testing.assert_allclose(durations, 50 * 0.3 + bits / 3e6, rtol=1e-12)


def test_the_blacklist_takes_the_most_used():
    assert blacklist(np.array([11, 13, 12, 13, 10]), 2).tolist() == [False, True, False, True, False]
    assert blacklist(np.array([11, 13, 12, 13, 10]), 5).tolist() == [True, True, True, True, False]
    assert not blacklist(np.array([11, 13, 12]), -1).any()
    method, roster = tried(build(8), [1e3, 1e3] + [10.0] * 6, [20] * 8), timed_roster([1.0] * 8)
    roster.selections[:] = [20, 20] + [1] * 6
    picked = set.union(*(set(select(method, roster, 21, 3, seed).clients.tolist()) for seed in range(30)))
    assert not picked & {0, 1}
    assert select(method, roster, 21, 8).clients.size == 8
