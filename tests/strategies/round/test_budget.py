import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import BudgetConfig
from strategies.roster import RoundInfo, Selection
from strategies.round.budget import client_fractions, cohort_fractions, link_caps, round_fraction
from tests.support.contexts import make_roster

ALEXNET = 2_781_514
FREE = np.full(3, np.inf)
LATER = RoundInfo(5, 10)
# T = 5 has the cosine at 0, 45, 90, 135 and 180 degrees; T = 4 after one warm-up round at 0, 90 and 180.
HALF_ROOT = 0.5**0.5


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, 1.0),
        (2, 0.2 * (1 + 0.4 * HALF_ROOT)),
        (3, 0.2),
        (4, 0.2 * (1 - 0.4 * HALF_ROOT)),
        (5, 0.12),
    ],
)
def test_schedule_of_the_text(number, expected):
    assert round_fraction(RoundInfo(number, 5), BudgetConfig()) == pytest.approx(expected)


@pytest.mark.parametrize(("number", "expected"), [(1, 1.0), (2, 0.28), (3, 0.2), (4, 0.12)])
def test_schedule_of_the_authors_code(number, expected):
    assert round_fraction(RoundInfo(number, 4), BudgetConfig(cosine_from="warmup")) == pytest.approx(expected)


def test_schedule_without_warmup_starts_at_the_crest():
    for start in ("round-1", "warmup"):
        config = BudgetConfig(kept_warmup_rounds=0, cosine_from=start)
        assert round_fraction(RoundInfo(1, 100), config) == pytest.approx(0.28)
        assert round_fraction(RoundInfo(100, 100), config) == pytest.approx(0.12)


def test_schedule_stays_above_its_floor_and_at_most_everything():
    assert round_fraction(RoundInfo(5, 5), BudgetConfig(kept_fraction=0.1)) == 0.08
    assert round_fraction(RoundInfo(2, 100), BudgetConfig(kept_fraction=1.0)) == 1.0


@pytest.mark.parametrize("start", ["round-1", "warmup"])
@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_a_run_of_one_round_has_a_fraction(start, warmup):
    assert 0 < round_fraction(RoundInfo(1, 1), BudgetConfig(kept_warmup_rounds=warmup, cosine_from=start)) <= 1


@given(st.integers(2, 200))
def test_schedule_falls_and_averages_to_the_fraction(total):
    config = BudgetConfig(kept_warmup_rounds=0)
    values = [round_fraction(RoundInfo(number, total), config) for number in range(1, total + 1)]
    assert values == sorted(values, reverse=True)
    assert np.mean(values) == pytest.approx(0.2)


def test_transfer_cap_is_the_share_of_the_mean_link():
    # 32 N / 3 Mb/s, times B, over 32 N: B / 3 Mb/s.
    caps = link_caps(np.array([1e6, 3e6, 4.5e6]), 3e6, 15.0, ALEXNET, BudgetConfig())
    np.testing.assert_allclose(caps, [1 / 3, 1.0, 1.5])


def test_round_cap_is_the_authors_20_9_seconds():
    # 0.2 * 32 * 2,781,514 bits / 3 Mb/s = 5.934 s of transfer, and 50 * 0.3 s = 15 s of training: 20.934 s, in which
    # 1 Mb/s carries 20.934 of the 89.008 Mbit of a dense update, and 5 Mb/s five times as much.
    caps = link_caps(np.array([1e6, 5e6]), 3e6, 15.0, ALEXNET, BudgetConfig(link_cap="round"))
    np.testing.assert_allclose(caps, [0.235191, 1.175954], rtol=1e-5)


def test_no_cap_where_none_is_asked_for_or_the_link_is_unknown():
    assert np.isposinf(link_caps(np.array([1e6]), 3e6, 15.0, 10, BudgetConfig(link_cap="none"))).all()
    for cap in ("transfer", "round"):
        config = BudgetConfig(link_cap=cap)
        assert np.isposinf(link_caps(np.array([np.nan]), np.nan, np.nan, 10, config)).all()


def test_fractions_by_hand():
    # Mean score 0.5: shares 0.4, 1 and 1.6 of 0.2 are 0.08, 0.2 and 0.32; the caps cut the last to 0.25.
    fractions = client_fractions(np.array([0.2, 0.5, 0.8]), 0.2, np.array([0.1, 0.3, 0.25]), LATER, BudgetConfig())
    np.testing.assert_allclose(fractions, [0.08, 0.2, 0.25])


def test_fractions_are_clipped():
    # Mean 1: shares 0, 0.1 and 2.9 of 0.9 are 0, 0.09 and 2.61.
    fractions = client_fractions(np.array([0.0, 0.1, 2.9]), 0.9, FREE, LATER, BudgetConfig(kept_min=0.1))
    np.testing.assert_allclose(fractions, [0.1, 0.1, 1.0])


def test_the_smallest_fraction_goes_before_the_cap():
    fractions = client_fractions(np.ones(3), 0.2, np.full(3, 0.001), LATER, BudgetConfig(kept_min=0.05))
    np.testing.assert_allclose(fractions, 0.05)


def test_uniform_allocation_ignores_scores_but_not_links():
    config = BudgetConfig(allocation="uniform")
    fractions = client_fractions(np.array([0.0, 0.1, 0.9]), 0.2, np.array([np.inf, 0.05, np.inf]), LATER, config)
    np.testing.assert_allclose(fractions, [0.2, 0.05, 0.2])


def test_scores_that_are_all_zero_share_equally():
    np.testing.assert_allclose(client_fractions(np.zeros(3), 0.2, FREE, LATER, BudgetConfig()), 0.2)


def test_warmup_sends_everything_or_follows_scores_and_links():
    scores, caps = np.array([1.0, 3.0]), np.array([0.7, 0.9])
    np.testing.assert_array_equal(client_fractions(scores, 1.0, caps, RoundInfo(1, 10), BudgetConfig()), [1.0, 1.0])
    authors = BudgetConfig(kept_warmup_full=False)
    # Shares 0.5 and 1.5 of 1, capped at 0.7 and 0.9.
    np.testing.assert_allclose(client_fractions(scores, 1.0, caps, RoundInfo(1, 10), authors), [0.5, 0.9])


def test_cohort_fractions_read_the_selected_clients_links_and_steps():
    roster = make_roster(4)
    roster.uplink_bits_per_s[:] = [1e6, 2e6, 3e6, 4e6]
    roster.local_steps[:] = [1000, 10, 1000, 30]
    config = BudgetConfig(link_cap="round", kept_cosine=0.0)
    selection = Selection(np.array([1, 3]), np.ones(2))
    theta, fractions = cohort_fractions(selection, roster, (3e6, 0.01), 375_000, RoundInfo(2, 10), config)
    # Dense: 32 * 375,000 = 12 Mbit, 4 s at 3 Mb/s. Budget: 0.2 * 4 s + 20 steps * 0.01 s = 1 s.
    # Caps: 2 of 12 Mbit = 1/6 and 4 of 12 = 1/3; the round's fraction is 0.2.
    assert theta == pytest.approx(0.2)
    np.testing.assert_allclose(fractions, [1 / 6, 0.2])


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.001, 5)), min_size=1, max_size=10),
    st.floats(0.01, 1),
    st.sampled_from(["score", "uniform"]),
)
def test_fractions_are_never_above_cap_or_out_of_range(pairs, fraction, allocation):
    scores, caps = np.array(pairs).T
    fractions = client_fractions(scores, fraction, caps, LATER, BudgetConfig(allocation=allocation))
    assert ((fractions >= 0.01) & (fractions <= 1.0)).all()
    assert (fractions <= np.maximum(caps, 0.01)).all()
