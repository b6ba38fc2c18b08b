import math
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm as normal

from fedsel_app.config import ConfigError, PrivacyConfig, Settings
from fedsel_app.records.releases import Releases
from simulation.testing.fakes import dense, make_context
from strategies.aggregation import privacy
from strategies.aggregation.server_state import ServerState

pytestmark = pytest.mark.skipif(find_spec("opacus") is None, reason="needs opacus")


def private(noise=1.0, clip=2.0, seed=0):
    config = PrivacyConfig(dp_clip_norm=clip, dp_noise_multiplier=noise)
    return privacy.Privacy(config, Releases(), np.random.default_rng(seed))


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


def test_two_runs_have_different_noise():
    one, other = (privacy.Privacy(PrivacyConfig(dp_clip_norm=1.0), Releases()) for _ in range(2))
    assert one.protect([dense([0.0])])[0] != other.protect([dense([0.0])])[0]


def exact_epsilon(noise, rounds, delta):
    """B. Balle, Y.-X. Wang, ICML 2018, Theorem 8: T rounds of noise z are one of z / sqrt(T)."""
    mu = math.sqrt(rounds) / noise

    def excess(epsilon):
        return normal.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0.0, 500.0)


@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (4.0, 30), (1.0, 5)])
def test_epsilon_is_just_above_the_exact_one(noise, rounds):
    spent, releases = private(noise=noise), Releases()
    assert spent.epsilon() == 0.0
    releases.count = rounds
    spent = privacy.Privacy(PrivacyConfig(dp_clip_norm=2.0, dp_noise_multiplier=noise), releases)
    exact = exact_epsilon(noise, rounds, 1e-5)
    assert exact < spent.epsilon() < 1.15 * exact


def test_epsilon_is_never_negative():
    releases = Releases()
    releases.count = 1
    config = PrivacyConfig(dp_clip_norm=1.0, dp_noise_multiplier=10.0, dp_delta=0.5)
    assert privacy.Privacy(config, releases).epsilon() == 0.0


@pytest.mark.parametrize("noise", [1e-100, 1e100])
def test_epsilon_is_a_number_for_any_noise_that_a_run_may_have(noise):
    """With 1e-200 and 1e160 the accountant raised after the first model had left, and with these it warned."""
    releases = Releases()
    releases.count = 10**6
    config = PrivacyConfig(dp_clip_norm=1.0, dp_noise_multiplier=noise)
    assert np.isfinite(privacy.Privacy(config, releases).epsilon())
    for beyond in (noise / 2 if noise < 1.0 else noise * 2, float("nan")):
        with pytest.raises(ConfigError, match="dp-noise-multiplier"):
            PrivacyConfig(dp_clip_norm=1.0, dp_noise_multiplier=beyond)


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


def test_without_the_library_it_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(ConfigError, match=r"fedsel\[privacy\]"):
        private()


def test_batchnorm_statistics_are_refused():
    with pytest.raises(ConfigError, match="BatchNorm"):
        privacy.refuse_statistics(PrivacyConfig(dp_clip_norm=1.0), 8)
    privacy.refuse_statistics(PrivacyConfig(), 8)
