import numpy as np
import pytest

from fedsel_app.config import BudgetConfig, CompressionConfig, SharedSettings
from fedsel_app.wire.codec import Update, encode
from strategies.roster import RoundInfo, Selection
from strategies.round.budget import (
    client_fractions,
    client_seconds,
    cohort_fractions,
    fitting_fractions,
    link_caps,
    round_fraction,
    update_bits,
)
from tests.support.contexts import make_roster

ALEXNET = 2_781_514
TOP_K = CompressionConfig()
FREE = np.full(3, np.inf)
LATER = RoundInfo(5, 10)
# T = 5 has the cosine at 0, 45, 90, 135 and 180 degrees; T = 4 after one warm-up round at 0, 90 and 180.
HALF_ROOT = 0.5**0.5


def given_by(details="text", **budget):
    return SharedSettings(compression=CompressionConfig(details=details), budget=BudgetConfig(**budget))


@pytest.mark.parametrize(
    ("total", "settings", "expected"),
    [
        (5, {}, [1.0, 0.2 * (1 + 0.4 * HALF_ROOT), 0.2, 0.2 * (1 - 0.4 * HALF_ROOT), 0.12]),
        (4, {"details": "code"}, [1.0, 0.28, 0.2, 0.12]),
        (3, {"kept_warmup_rounds": 0}, [0.28, 0.2, 0.12]),
        (3, {"kept_warmup_rounds": 0, "details": "code"}, [0.28, 0.2, 0.12]),
        (3, {"kept_fraction": 0.1}, [1.0, 0.1, 0.08]),
        (2, {"kept_fraction": 1.0, "kept_warmup_rounds": 0}, [1.0, 0.6]),
    ],
    ids=["the text", "the authors' code", "no warm-up", "no warm-up in the code", "the floor", "at most everything"],
)
def test_the_schedule_by_hand(total, settings, expected):
    config = given_by(**settings)
    found = [round_fraction(RoundInfo(number, total), config) for number in range(1, total + 1)]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("details", ["text", "code"])
@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_a_run_of_one_round_has_a_fraction(details, warmup):
    assert 0 < round_fraction(RoundInfo(1, 1), given_by(details, kept_warmup_rounds=warmup)) <= 1


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


@pytest.mark.parametrize(
    ("scores", "fraction", "caps", "settings", "expected"),
    [
        # Mean score 0.5: shares 0.4, 1 and 1.6 of 0.2 are 0.08, 0.2 and 0.32; the caps cut the last to 0.25.
        ([0.2, 0.5, 0.8], 0.2, [0.1, 0.3, 0.25], {}, [0.08, 0.2, 0.25]),
        # Mean 1: shares 0, 0.1 and 2.9 of 0.9 are 0, 0.09 and 2.61.
        ([0.0, 0.1, 2.9], 0.9, FREE, {}, [0.01, 0.09, 1.0]),
        ([1.0, 1.0, 1.0], 0.2, [0.001] * 3, {"details": "code"}, [0.005] * 3),
        ([0.0, 0.1, 0.9], 0.2, [np.inf, 0.05, np.inf], {"allocation": "uniform"}, [0.2, 0.05, 0.2]),
        ([0.0, 0.0, 0.0], 0.2, FREE, {}, [0.2] * 3),
    ],
    ids=["caps", "clipped", "the smallest goes before the cap", "uniform, but for links", "scores of zero"],
)
def test_fractions_by_hand(scores, fraction, caps, settings, expected):
    found = client_fractions(np.array(scores), fraction, np.array(caps), LATER, given_by(**settings))
    np.testing.assert_allclose(found, expected)


def test_warmup_sends_everything_or_follows_scores_and_links():
    scores, caps = np.array([1.0, 3.0]), np.array([0.7, 0.9])
    np.testing.assert_array_equal(client_fractions(scores, 1.0, caps, RoundInfo(1, 10), given_by()), [1.0, 1.0])
    authors = given_by(kept_warmup_full=False)
    # Shares 0.5 and 1.5 of 1, capped at 0.7 and 0.9.
    np.testing.assert_allclose(client_fractions(scores, 1.0, caps, RoundInfo(1, 10), authors), [0.5, 0.9])


def test_cohort_fractions_read_the_selected_clients_links_and_steps():
    roster = make_roster(4)
    roster.uplink_bits_per_s[:] = [1e6, 2e6, 3e6, 4e6]
    config = given_by(link_cap="round", kept_cosine=0.0)
    selection = Selection(np.array([1, 3]), np.ones(2))
    theta, fractions = cohort_fractions(
        selection, roster, np.array([10, 30]), (3e6, 0.01), 375_000, RoundInfo(2, 10), config
    )
    # Dense: 32 * 375,000 = 12 Mbit, 4 s at 3 Mb/s. Budget: 0.2 * 4 s + 20 steps * 0.01 s = 1 s.
    # Caps: 2 of 12 Mbit = 1/6 and 4 of 12 = 1/3; the round's fraction is 0.2.
    assert theta == pytest.approx(0.2)
    np.testing.assert_allclose(fractions, [1 / 6, 0.2])


@pytest.mark.parametrize("fraction", [0.01, 0.08, 0.2, 0.5, 1.0])
def test_bits_are_what_the_codec_writes(fraction):
    size, rng = 50_000, np.random.default_rng(1)
    kept = np.sort(rng.choice(size, int(fraction * size), replace=False)).astype(np.uint32)
    update = Update(size, None if fraction == 1 else kept, rng.normal(size=kept.size).astype(np.float32))
    assert update_bits(size, fraction, TOP_K) == pytest.approx(
        8 * len(encode(update, client=0, server_round=1)), rel=0.03
    )


def test_bits_of_the_other_compressors():
    assert update_bits(100, 0.25, CompressionConfig(compressor="rand-k")) == 800
    assert update_bits(100, 0.25, CompressionConfig(compressor="none")) == 3200


def test_seconds_of_training_and_upload():
    roster = make_roster(3)
    roster.uplink_bits_per_s[:] = [1e6, 2e6, 4e6]
    roster.step_s[:] = [0.1, 0.2, 0.3]
    compute_s, upload_s = client_seconds(roster, np.array([0, 2]), 1000, 1.0, TOP_K)
    np.testing.assert_allclose(compute_s, [5.0, 15.0])
    np.testing.assert_allclose(upload_s, [0.032, 0.008])
    # A quarter costs 8 bits for each entry of the model, and the entropy of 1/4: 4 times that for all of them.
    _, upload_s = client_seconds(roster, np.array([0, 2]), 1000, 0.25, TOP_K)
    np.testing.assert_allclose(upload_s, [0.004 * 8.811278, 0.001 * 8.811278], rtol=1e-6)


def test_fractions_fill_the_time_until_the_deadline():
    fractions = fitting_fractions(10.0, np.array([9.0, 5.0, 2.0, 11.0]), np.array([4.0, 5.0, 4.0, 1.0]), 0.05)
    assert fractions.tolist() == [0.25, 1.0, 1.0, 0.05]
    assert fitting_fractions(np.inf, np.array([9.0]), np.array([4.0]), 0.05).tolist() == [1.0]
