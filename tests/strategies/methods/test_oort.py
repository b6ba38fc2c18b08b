"""Oort: the published worked vector, plain-Python references of both rules, and their traps."""

from math import log, sqrt

import numpy as np
import pytest

from fedsel_app.messages.scalars import Report
from fedsel_app.wire.rounded_values import BLOCK
from strategies.methods.oort import (
    Oort,
    OortConfig,
    admitted,
    at_percentile,
    blacklist,
    exploit,
    explore,
    official_pace,
    paper_pace,
    scaled,
    scores,
    system_factor,
)
from strategies.roster import RoundInfo, Selection
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select

NAN = np.nan
RULES = ("paper", "official")
REWARDS, SIZES = [10.0, 20.0, 30.0, 40.0, 50.0], [65.0, 66.0, 67.0, 68.0]
STAMPS, DURATIONS = [1, 2, 3, 4, 4], [1.0, 2.0, 3.0, 4.0, 8.0]


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


def outcome_of(number, clients, losses, failed=(), exploited=()):
    reports = {Report.RMS_LOSS: np.array(losses, float)}
    updates = [dense([0.0, 0.0])] * len(clients)
    selected = np.array(sorted([*clients, *failed]), np.int64)
    selection = Selection(selected, components={"exploited": np.isin(selected, exploited).astype(float)})
    return outcome(RoundInfo(number, 100), clients, updates, reports=reports, failed=failed, selection=selection)


DRAWS = 1000
FOUR_SIGMA = 4 * sqrt(0.25 / DRAWS)


def assert_chosen(method, roster, number, expected):
    """The frequencies of the one client selected are the `expected`; four standard errors are hardly chance."""
    round_info, rng, found = RoundInfo(number, 100), np.random.default_rng(number), np.zeros(method.context.run.clients)
    for _ in range(DRAWS):
        found[method.select(roster, round_info, 1, rng).clients] += 1
    np.testing.assert_allclose(found / DRAWS, expected, rtol=0, atol=FOUR_SIGMA)


# Five tried and four untried clients of the official rule ------------------------------------------------------


def vector_scores():
    preferred = at_percentile(np.array([*DURATIONS, 5, 6, 7, 8]), 0.5)
    assert preferred == 5.0
    assert at_percentile(np.array(REWARDS + SIZES), 0.98) == 68.0
    gains = scaled(np.array(REWARDS + SIZES), 0.98)[:5]
    np.testing.assert_allclose(gains * 58.01 + 9.99, REWARDS)
    system = system_factor(np.array(DURATIONS), preferred, 2.0)
    return scores(gains, np.array(STAMPS), 5, system)


def test_the_scores_of_the_worked_vector():
    """T is the fifth of nine durations, 5; the cap is the largest reward, 68, and the lowest value .999 x 10 = 9.99.

    (reward - 9.99) / 58.01 + sqrt(.1 ln 5 / stamp) is .000172 + .401177, .172556 + .283676, .344941 + .231620,
    .517325 + .200589 and .689709 + .200589, the last times (5 / 8)^2 for its 8 s.
    """
    np.testing.assert_allclose(vector_scores(), [0.40135, 0.456232, 0.576561, 0.717914, 0.347773], atol=1e-6)


def test_the_draw_of_the_worked_vector():
    """.7 x the second best, .576561, admits .717914, .576561 and .456232: their shares of 1.750707."""
    found = vector_scores()
    assert admitted(found, 1, 0.7).tolist() == [3, 2, 1]
    rng = np.random.default_rng(0)
    counts = np.bincount([exploit(found, 1, 1, 0.7, rng)[0] for _ in range(DRAWS)], minlength=5)
    np.testing.assert_allclose(counts / DRAWS, [0, 0.2606, 0.3293, 0.4101, 0], rtol=0, atol=FOUR_SIGMA)


def test_a_place_beyond_the_last_score_is_the_last():
    assert admitted(np.array([3.0, 1.0, 2.0]), 9, 1.0).tolist() == [0, 2, 1]


def test_rounds_of_less_than_a_second_have_their_own_factor():
    np.testing.assert_allclose(system_factor(np.array([0.5, 0.25, 0.1]), 0.25, 2.0), [0.25, 1.0, 1.0])


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.99, 3.0), (1.0, 3.0)])
def test_the_highest_percentile_is_the_largest_value(share, expected):
    assert at_percentile(np.array([3.0, 1.0, 2.0]), share) == expected


# Both rules against plain Python ------------------------------------------------------------------------------


CUTOFF = {"paper": 0.825, "official": 0.7}
"""Where it matters for both which score is the marginal one."""


def test_utilities_that_hardly_differ_are_divided_by_at_least_a_ten_thousandth():
    """lo = .999 x .001; (.001 - .000999) / .0001 = .01. An arm without a utility has no score."""
    np.testing.assert_allclose(scaled(np.array([1e-3, 0.0, 1e-3]), 0.95), [0.01, NAN, 0.01])


def test_one_local_step_makes_a_client_known_to_the_official_rule():
    """T is at the 50th percentile of the known 2, 4 and 6 seconds. A client without steps has not been seen."""
    method = build(clients=4, rule="official", pacer_percentile=50.0)
    roster = timed_roster([2.0, 4.0, 6.0, 8.0])
    roster.local_steps[:], roster.step_s[:] = [1, 1, 1, 0], [2.0, 4.0, 6.0, 8.0]
    durations, preferred = method.durations(roster, RoundInfo(2, 100))
    np.testing.assert_allclose(durations, [2.0, 4.0, 6.0, 0.0], atol=1e-9)
    assert preferred == pytest.approx(4.0)


def test_only_the_official_rule_draws_its_first_round_uniformly():
    run = build().context.run
    assert [Oort.uniform_rounds(OortConfig(rule=rule), run) for rule in RULES] == [0, 1]


def reference(rule, rewards, stamps, durations, number):
    """P(the one exploited client) where all clients were tried, from the rules in `oort.py`; T is 5 s."""
    total = []
    ordered = sorted(rewards)
    clip = ordered[min(int(len(rewards) * (0.95 if rule == "paper" else 0.5)), len(rewards) - 1)]
    for reward, stamp, duration in zip(rewards, stamps, durations, strict=True):
        value = min(reward, clip)
        if rule == "official":
            low = 0.999 * min(rewards)
            value = (value - low) / (max(rewards) - low)
        value += sqrt(0.1 * log(number) / stamp)
        total.append(value * (5.0 / duration) ** 2 if duration > 5.0 else value)
    ranked = sorted(total, reverse=True)
    threshold = CUTOFF[rule] * ranked[0 if rule == "paper" else 1]
    pool = [value if value >= threshold else 0.0 for value in total]
    return [value / sum(pool) for value in pool]


@pytest.mark.parametrize("rule", RULES)
def test_exploitation_equals_the_plain_rule(rule):
    rewards, stamps, durations = [30.0, 25.0, 60.0, 28.0, 5.0], [1, 5, 9, 2, 10], [2.0, 5.0, 7.0, 3.0, 4.0]
    steps = {"pacer_step_s": 5.0} if rule == "paper" else {"pacer_percentile": 65.0, "clip": 0.5}
    method = tried(build(5, rule=rule, cutoff=CUTOFF[rule], **steps), rewards, stamps)
    roster = timed_roster(durations)
    _, preferred = method.durations(roster, RoundInfo(11, 100))
    assert preferred == pytest.approx(5.0)
    assert_chosen(method, roster, 11, reference(rule, rewards, stamps, durations, 11))


def test_the_paper_explores_by_speed_from_the_first_round_on():
    assert_chosen(build(3), timed_roster([1.0, 2.0, 4.0]), 1, [4 / 7, 2 / 7, 1 / 7])


def test_the_official_first_round_is_uniform_and_later_exploration_by_size_and_speed():
    roster = timed_roster([1.0, 2.0, 4.0, 1.0], examples=[10, 40, 80, 30])
    method = build(4, rule="official", pacer_percentile=50.0)
    assert_chosen(method, roster, 1, [0.25] * 4)
    # T = 2 s; client 2 counts 80 (2 / 4)^2 = 20. Of m = 1 nothing is exploited while eps > 0.
    tried(method, [NAN, NAN, NAN, 30.0], [0, 0, 0, 1])
    assert_chosen(method, roster, 2, [1 / 7, 4 / 7, 2 / 7, 0])


def test_the_sample_window_cuts_the_tail_of_exploration():
    rng = np.random.default_rng(0)
    assert {int(explore(np.array([1.0, 9, 2, 8]), 1, 2.0, rng)[0]) for _ in range(200)} == {1, 3}
    assert explore(np.array([1.0, 9, 2, 8]), 0, 5.0, rng).size == 0
    assert explore(np.zeros(0), 0, 5.0, rng).size == 0
    assert sorted(explore(np.array([1.0, 9]), 2, 5.0, rng)) == [0, 1]


@pytest.mark.parametrize(
    ("rule", "number", "exploited"), [("paper", 2, 1), ("official", 2, 1), ("paper", 30, 4), ("official", 30, 7)]
)
def test_exploration_decays(rule, number, exploited):
    """m = 10: 0.9 x 0.98 and 0.9 x 0.95 explore in round 2; 0.9 x 0.98^29 = 0.501 and 0.9 x 0.95^29 = 0.203 in 30."""
    values = np.full(40, NAN)
    values[:20] = 50.0
    method = tried(build(40, rule=rule), values, [1] * 20 + [0] * 20)
    picked = select(method, timed_roster([1.0] * 40), number, 10).clients
    assert (picked < 20).sum() == exploited


def test_where_all_are_tried_nothing_is_explored():
    """The two best, whose scores stand out, are exploited: at the marginal score the cutoff admits no third."""
    for rule in RULES:
        method = tried(build(4, rule=rule, cutoff=0.95), [1.0, 100.0, 100.0, 1.0], [9, 9, 9, 9])
        picked = {tuple(select(method, timed_roster([1.0] * 4), 10, 2, seed).clients) for seed in range(20)}
        assert (1, 2) in picked
        assert rule == "official" or len(picked) == 1


# Feedback -----------------------------------------------------------------------------------------------------


def test_utility_is_the_trained_examples_times_the_root_mean_square_loss():
    """50 steps of 32 train at most 1600 examples. Who failed takes the mean."""
    method = build(4)
    method.whole_roster = make_roster(4, examples=[100, 5000, 300, 7])
    method.update(outcome_of(3, [0, 1], [2.0, 0.5], failed=[3]))
    state = method.state()
    np.testing.assert_allclose(state["utilities"], [200, 800, NAN, 500])
    assert state["last"].tolist() == [3, 3, 0, 3]


def test_nothing_is_learnt_where_nobody_came():
    method = build(4)
    before = method.state()
    method.update(outcome_of(3, [], [], failed=[0, 1]))
    after = method.state()
    np.testing.assert_array_equal(after["utilities"], before["utilities"])
    assert after["achieved"].tolist() == [0]


def test_the_papers_pacer_relaxes_when_the_utility_achieved_falls():
    assert paper_pace(np.array([3.0, 3, 2, 3]), 1.0) == 2.0
    assert paper_pace(np.array([3.0, 3, 3, 3]), 1.0) == 1.0
    method = build(2, pacer_rounds=2, pacer_step_s=7.0)
    method.whole_roster = make_roster(2)
    preferred = []
    for number, loss in enumerate([5, 5, 4, 4, 9, 9, 1, 1], start=1):
        method.update(outcome_of(number, [0], [loss]))
        preferred.append(method.durations(timed_roster([1.0, 2.0]), RoundInfo(number + 1, 100))[1])
    assert preferred == [7, 7, 7, 14, 14, 14, 14, 21]


def test_the_preferred_duration_of_the_paper_rule_is_a_mean_clients_by_default():
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


def test_the_official_pacer_goes_both_ways():
    assert official_pace(np.array([10.0, 10, 10, 12]), 30.0, 5.0) == 35.0
    assert official_pace(np.array([10.0, 10, 10, 12.1]), 30.0, 5.0) == 30.0
    assert official_pace(np.array([1.0, 1, 3, 3]), 30.0, 5.0) == 30.0
    assert official_pace(np.array([1.0, 1, 6, 6]), 30.0, 5.0) == 25.0
    assert official_pace(np.array([1.0, 1, 6, 6]), 6.0, 5.0) == 5.0
    assert official_pace(np.zeros(4), 98.0, 5.0) == 100.0
    method = build(2, rule="official", pacer_rounds=1, pacer_percentile=99.0)
    method.whole_roster = make_roster(2)
    method.update(outcome_of(1, [0], [1.0]))
    method.update(outcome_of(2, [0], [1.0], exploited=[0]))
    # Round 1 explored (0), round 2 exploited: a leap.
    np.testing.assert_allclose(method.state()["achieved"], [0, 100 / 1.0001])
    assert float(method.state()["pace"]) == 94.0
    method.update(outcome_of(3, [0], [1.0], exploited=[0]))
    method.update(outcome_of(4, [0], [1.0], exploited=[0]))
    assert method.durations(timed_roster([1.0, 2.0]), RoundInfo(5, 100))[1] == np.inf


def test_the_official_pacer_averages_the_exploited_stragglers_included():
    """Utilities 100 x (2, 1, 6) of clients 0, 1, 2; straggler 3 takes their mean 300, and 4 another straggler's.

    Exploited are 0, 3 and, never having been tried, none of 1, 2 and 4: (200 + 300) / 2.0001.
    """
    method = build(rule="official", pacer_rounds=1)
    method.whole_roster = make_roster(6)
    method.update(outcome_of(1, [0, 1, 2], [2.0, 1.0, 6.0], failed=[3, 4], exploited=[0, 3]))
    np.testing.assert_allclose(method.state()["achieved"], [500 / 2.0001], rtol=1e-12)
    # 1 was filled up uniformly: tried before, yet not exploited.
    method.update(outcome_of(2, [0, 1], [4.0, 9.0], exploited=[0]))
    np.testing.assert_allclose(method.state()["achieved"][-1], 400 / 1.0001, rtol=1e-12)
    method.update(outcome_of(3, [], [], failed=[0, 1], exploited=[0, 1]))
    assert method.state()["achieved"][-1] == 0


def test_the_selection_tells_who_is_exploited():
    """m = 5 in round 30 of the official rule: int(5 (1 - 0.203)) = 3 exploited, then 1 untried, then 1 to fill up."""
    method = tried(build(8, rule="official"), [50.0] * 7 + [NAN], [1] * 7 + [0])
    picked = select(method, timed_roster([1.0] * 8), 30, 5)
    assert picked.components["exploited"].sum() == 3
    assert picked.components["exploited"][picked.clients == 7].tolist() == [0]


def test_the_official_preferred_duration_is_over_all_registered_clients():
    """Durations 1 ... 8 s: the half is index 4, 5 s, of all; of those present, 1 2 3 4, it would be 3 s.

    Client 7 never enrolled: it has no duration, and of 1 ... 7 the half is index 3, 4 s.
    """
    method = build(8, rule="official", pacer_percentile=50.0)
    roster = timed_roster([1.0, 2, 3, 4, 5, 6, 7, 8], available=[0, 1, 2, 3])
    each, preferred = method.durations(roster, RoundInfo(2, 100))
    np.testing.assert_allclose(each, [1, 2, 3, 4])
    assert preferred == pytest.approx(5.0)
    roster.local_steps[7] = 0
    assert method.durations(roster, RoundInfo(2, 100))[1] == pytest.approx(4.0)
    roster.step_s[6] = NAN
    assert method.durations(roster, RoundInfo(2, 100))[1] == pytest.approx(4.0)


def test_the_blacklist_takes_the_most_used():
    assert blacklist(np.array([3, 5, 4, 5, 1]), 3, 2).tolist() == [False, True, False, True, False]
    assert blacklist(np.array([3, 5, 4, 5, 1]), 3, 5).tolist() == [False, True, True, True, False]
    assert not blacklist(np.array([3, 5, 4]), -1, 2).any()
    assert not blacklist(np.array([3, 5, 4]), 0, -1).any()
    assert blacklist(np.array([0, 5, 4]), 0, 1).tolist() == [False, True, False]
    for rule, out in (("paper", {0, 1}), ("official", set())):
        method = tried(build(8, rule=rule), [1e3, 1e3] + [10.0] * 6, [20] * 8)
        roster = timed_roster([1.0] * 8)
        roster.selections[:] = [20, 20] + [1] * 6
        picked = set.union(*(set(select(method, roster, 21, 3, seed).clients.tolist()) for seed in range(30)))
        assert {0, 1} - picked == out
        assert select(method, roster, 21, 8).clients.size == 8
