import math
import os
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import kstest

from fedsel_app.config import PrivacyConfig, Settings
from fedsel_app.records.run_folder import Releases
from strategies.aggregation import privacy
from strategies.aggregation.server_state import ServerState
from strategies.testing.fakes import dense, make_context


def private(noise=1.0, clip=2.0, seed=0):
    config = PrivacyConfig(dp_clip_norm=clip, dp_noise_multiplier=noise)
    return privacy.Privacy(config, Releases(), np.random.default_rng(seed).standard_normal)


def test_updates_above_the_norm_are_scaled_down_to_it_and_others_stay():
    aggregate, weights = private(noise=1e-12).protect([dense([3.0, 4.0]), dense([0.6, 0.8])])
    # The first has norm 5 and counts as 2: (1.2, 1.6). The mean of that and (0.6, 0.8):
    np.testing.assert_allclose(aggregate, [0.9, 1.2], rtol=1e-6)
    np.testing.assert_allclose(weights, [0.5 * 2 / 5, 0.5])


def test_an_update_of_zeros_is_one():
    aggregate, weights = private(noise=1e-12).protect([dense([0.0, 0.0])])
    np.testing.assert_allclose(aggregate, [0.0, 0.0], atol=1e-9)
    assert weights.tolist() == [1.0]


def test_the_noise_is_that_of_one_client():
    many = 20_000
    aggregate, _ = private(noise=1.5, clip=2.0).protect([dense(np.zeros(many))] * 4)
    # 1.5 clip norms of 2, in a mean of 4: 0.75, and a deviation measured on 20,000 entries is within 3%.
    assert aggregate.std() == pytest.approx(0.75, rel=0.03)
    assert abs(aggregate.mean()) < 0.75 * 4 / math.sqrt(many)


def test_the_noise_is_of_the_systems_generator_whatever_the_seeds(monkeypatch):
    """64 random bits are a sign and a probability, whose quantile is the size. No seed counts."""
    bits = np.array([0, -1, 2**62, -(2**62), 2**63 - 1, 2**40], np.int64)
    monkeypatch.setattr(os, "urandom", lambda size: bits.tobytes()[:size])
    drawn = privacy.Privacy(PrivacyConfig(dp_clip_norm=1.0), Releases()).protect([dense(np.zeros(bits.size))])[0]
    quantile = NormalDist().inv_cdf
    expected = [
        -quantile(2.0**-65),
        quantile(1.5 * 2.0**-64),
        -quantile(0.25),
        quantile(0.25),
        0.0,
        -quantile(2.0**-24),
    ]
    np.testing.assert_allclose(drawn, expected, rtol=1e-9)


def test_the_noise_is_normal():
    assert kstest(privacy.secret_normal(100_000), "norm").pvalue > 1e-6


def test_the_server_accounts_only_what_it_releases():
    from strategies.roster import Selection
    from tests.support.stubs import decoded, update_reply

    context = make_context(Settings(), size=4, dp_clip_norm=1.0, weighting="uniform")
    state = ServerState(context)
    asked = np.array([0, 1])
    selection = Selection(asked, np.ones(2))
    nothing = decoded({}, asked, 1, 4)
    state.step(context.initial, selection, nothing)
    assert state.epsilon == 0.0
    came = decoded({0: update_reply(dense([9.0] * 4), 0, 1)}, asked, 1, 4)
    state.step(context.initial, selection, came)
    assert state.epsilon > 0.0
    assert context.recorder.releases.count == 1
    assert state.state()["privacy/releases"] == 1
