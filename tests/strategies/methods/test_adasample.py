"""AdaSample: its distribution against a general solver, unbiasedness by enumeration."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from fedsel_app.config import TrainingConfig
from strategies.methods.adasample import AdaSample, expected_slowest, sampling_distribution
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import selections

P, G, T = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0])


def test_the_reference_distribution():
    np.testing.assert_allclose(sampling_distribution(P * G, T), [0.408409, 0.346546, 0.245045], atol=5e-7)


def total_time(q, reach, seconds):
    return float((q @ seconds) * (reach**2 / q).sum())


@pytest.mark.parametrize("seed", range(6))
def test_the_distribution_is_optimal(seed):
    """Nelder-Mead from several starts finds nothing better, and the same."""
    rng = np.random.default_rng(seed)
    reach, seconds = rng.uniform(0.1, 1, 4), rng.uniform(1, 9, 4)
    q = sampling_distribution(reach, seconds)
    assert q.sum() == pytest.approx(1.0)
    best = min(
        minimize(
            lambda x: total_time(softmax(x), reach, seconds),
            rng.normal(size=4),
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 8000, "maxfev": 8000},
        ).fun
        for _ in range(4)
    )
    assert total_time(q, reach, seconds) == pytest.approx(best, rel=1e-6)


def test_expected_round_time_by_hand_and_by_enumeration():
    uniform = np.full(3, 1 / 3)
    assert expected_slowest(uniform, np.array([1.0, 2.0, 4.0]), 2) == pytest.approx(3.0)
    q, seconds = np.array([0.2, 0.5, 0.3]), np.array([7.0, 3.0, 5.0])
    by_hand = sum(np.prod(q[list(draws)]) * seconds[list(draws)].max() for draws in product(range(3), repeat=3))
    assert expected_slowest(q, seconds, 3) == pytest.approx(by_hand)


class Scripted:
    """A generator that draws what it is told."""

    def __init__(self, draws):
        self.draws = np.array(draws)

    def choice(self, n, size, p):
        assert size == self.draws.size
        return self.draws


def build(**shared):
    return AdaSample(make_context(AdaSample.Config(), clients=4, size=4, **shared))


def trained(norms, clients=range(4), number=1):
    """Updates of the given norms times the round's learning rate, so that the norms are the G_i."""
    rate = TrainingConfig().learning_rate(number, 10)
    return outcome(RoundInfo(number, 10), clients, [dense([rate * norm, 0, 0, 0]) for norm in norms])


def test_the_weighted_sum_is_unbiased():
    """Over all 4^3 draws the expected weighted sum is sum p_i x_i."""
    method, roster = build(), make_roster(4, examples=[10, 20, 30, 40])
    roster.step_s[:] = [0.1, 0.2, 0.3, 0.4]
    method.update(trained([1, 5, 2, 9]))
    _, q, _ = method.distribution(roster, RoundInfo(2, 10))
    values, expected = np.array([3.0, -1.0, 7.0, 0.5]), 0.0
    for draws in product(range(4), repeat=3):
        chosen = method.select(roster, RoundInfo(2, 10), 3, Scripted(draws))
        assert not chosen.normalise
        assert chosen.clients.tolist() == sorted(set(draws))
        expected += np.prod(q[list(draws)]) * (chosen.weights @ values[chosen.clients])
    assert expected == pytest.approx(np.array([0.1, 0.2, 0.3, 0.4]) @ values)


def test_draws_are_with_replacement_and_follow_q():
    method, roster = build(), make_roster(4, available=[0, 1, 3])
    method.update(trained([1, 5, 2, 9]))
    _, q, _ = method.distribution(roster, RoundInfo(2, 10))
    drawn = np.zeros(4)
    for chosen in selections(method, roster, 2, 2, 1000):
        assert chosen.components["draws"].sum() == 2
        drawn[chosen.clients] += chosen.components["draws"]
    assert np.abs(drawn / 2000 - [q[0], q[1], 0, q[2]]).max() < 0.04


def test_the_largest_norm_counts_and_the_unseen_have_the_mean():
    method, roster = build(), make_roster(4)
    method.update(trained([2, 6], clients=[0, 1]))
    method.update(trained([1, 9], clients=[0, 1], number=2))
    _, q, _ = method.distribution(roster, RoundInfo(3, 10))  # G = 2, 9, and 5.5 twice; everything else is equal
    np.testing.assert_allclose(q, 0.9 * np.array([2, 9, 5.5, 5.5]) / 22 + 0.025)


@pytest.mark.parametrize(("compressor", "bits"), [("none", 128), ("top-k", 32 + 4 * 0.8112781244591328)])
def test_the_seconds_of_a_client_are_those_of_its_steps_and_its_upload(compressor, bits):
    """A quarter of four entries: 32 bits, and four times the entropy of 1/4, 0.81 bits, for its place."""
    shared = {"compressor": compressor, "kept_fraction": 0.25, "kept_cosine": 0.0, "kept_warmup_rounds": 0}
    roster = make_roster(4)
    roster.uplink_bits_per_s[:] = [1, 10, 100, 1000]
    _, _, seconds = build(**shared).distribution(roster, RoundInfo(2, 10))
    np.testing.assert_allclose(seconds, 50 * 0.3 + bits / roster.uplink_bits_per_s)


def test_an_update_at_learning_rate_0_tells_nothing():
    method = build(lr_decay=1.0)
    method.update(outcome(RoundInfo(9, 10), [2], [dense([0.005, 0, 0, 0])]))
    before = method.state()["norms"].copy()
    method.update(outcome(RoundInfo(10, 10), [1, 2], [dense([1.0, 0, 0, 0])] * 2))
    np.testing.assert_array_equal(method.state()["norms"], before)
