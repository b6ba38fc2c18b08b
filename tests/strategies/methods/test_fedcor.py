"""FedCor: greedy selection against conditioning the full covariance, the fit against SciPy's density."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.stats import multivariate_normal
from torch import nn

from strategies.methods.fedcor import (
    FedCor,
    FedCorConfig,
    by_pattern,
    discounted_mean,
    fitted,
    greedy,
    likelihood_gradient,
)
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select
from tests.support.training import TorchOptimizer

SIGMA = np.array([[1, 0.6, 0.1, -0.2], [0.6, 1.2, 0.3, 0], [0.1, 0.3, 0.8, 0.4], [-0.2, 0, 0.4, 0.9]])
P = np.array([0.1, 0.4, 0.3, 0.2])


def embedded(sigma, noise_variance):
    """X with X^T X + s^2 I = sigma."""
    return np.linalg.cholesky(sigma - noise_variance * np.eye(len(sigma))).T


@pytest.mark.parametrize(
    ("annealing", "picked", "gains"),
    [((1, 1, 1, 1), [1, 2, 3], [0.575109, 0.343524, 0.143922]),
     ((1, 0.81, 1, 1), [2, 1, 3], [0.503115, 0.358267, 0.143922])],
)  # fmt: skip
def test_the_reference_selection(annealing, picked, gains):
    """Gains alpha_k / sqrt(Sigma_kk) sum_i p_i Sigma_ik, over the clients that are left.

    First .33, .63 / sqrt(1.2) = .575109, .45 / sqrt(.8) = .503115 and .28 / sqrt(.9) = .295146: client 1, or with
    .81 x .575109 = .465838 client 2. Given 1, Sigma_22 = .8 - .3^2 / 1.2 = .725, Sigma_02 = .1 - .18 / 1.2 = -.05,
    Sigma_32 = .4: (.1 x -.05 + .3 x .725 + .2 x .4) / sqrt(.725) = .343524. Given 2, Sigma_11 = 1.0875,
    Sigma_01 = .5625, Sigma_31 = -.15: .81 x .46125 / sqrt(1.0875) = .358267. Given both, Sigma_33 = .9 - .4^2 / .725
    = .679310 and Sigma_03 = -.2 + .05 x .4 / .725 = -.172414: (-.0172414 + .1358621) / sqrt(.679310) = .143922.
    """
    found = greedy(embedded(SIGMA, 1e-2), 1e-2, P, np.array(annealing, float), 3)
    assert found[0].tolist() == picked
    np.testing.assert_allclose(found[1], gains, atol=1e-6)


@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 4), st.integers(0, 3))
def test_greedy_is_conditioning_the_full_matrix(seed, size, dimension, under_way):
    """It is conditioned first on the clients under way, which are not chosen."""
    rng = np.random.default_rng(seed)
    x, p, alpha = rng.normal(size=(dimension, size)), rng.dirichlet(np.ones(size)), rng.uniform(0.3, 1, size)
    start = rng.permutation(size)[:under_way]
    picked, gains = greedy(x, 0.01, p, alpha, size - start.size, start)
    sigma, left = x.T @ x + 0.01 * np.eye(size), [client for client in range(size) if client not in start]
    for first in start:
        sigma = sigma - np.outer(sigma[:, first], sigma[first]) / sigma[first, first]
    for step in range(picked.size):
        gain = {k: alpha[k] / np.sqrt(sigma[k, k]) * sum(p[i] * sigma[i, k] for i in left) for k in left}
        assert gains[step] == pytest.approx(max(gain.values()), abs=1e-7)
        best = int(picked[step])
        assert gain[best] == pytest.approx(gains[step], abs=1e-7)
        sigma = sigma - np.outer(sigma[:, best], sigma[best]) / sigma[best, best]
        left.remove(best)


def likelihood(x, changes, weights, noise_variance):
    total = 0.0
    for change, weight in zip(changes, weights, strict=True):
        known = np.isfinite(change)
        covariance = x[:, known].T @ x[:, known] + noise_variance * np.eye(known.sum())
        total -= weight * multivariate_normal(np.zeros(known.sum()), covariance).logpdf(change[known])
    return total


def test_the_gradient_is_that_of_the_normal_density_with_absent_clients():
    rng = np.random.default_rng(0)
    changes = rng.normal(size=(4, 5))
    changes[1, 2] = changes[3, 2] = changes[3, 0] = np.nan
    weights = np.array([0.5, 1, 0.2, 0.9])

    def value(flat):
        return likelihood(flat.reshape(2, 5), changes, weights, 0.1)

    def gradient(flat):
        return likelihood_gradient(flat.reshape(2, 5), by_pattern(changes, weights), 0.1).ravel()

    x = rng.normal(size=10)
    assert check_grad(value, gradient, x) < 1e-4 * np.linalg.norm(gradient(x))


def test_fitting_takes_the_steps_of_adam():
    rng = np.random.default_rng(2)
    changes, weights, start = rng.normal(size=(6, 5)), rng.uniform(0.2, 1, 6), rng.normal(size=(3, 5))
    x = nn.Parameter(torch.tensor(start))
    adam = TorchOptimizer("adam", nn.ParameterList([x]), lr=0.01, beta1=0.9, beta2=0.999)
    for _ in range(4):
        x.grad = torch.tensor(likelihood_gradient(x.detach().numpy(), by_pattern(changes, weights), 0.1))
        adam.step()
    np.testing.assert_allclose(fitted(start, changes, weights, 0.1, 4), x.detach().numpy(), rtol=1e-9)


def test_discounted_mean_by_hand():
    changes = np.array([[1.0, 2, np.nan], [3, np.nan, np.nan]])
    np.testing.assert_allclose(discounted_mean(changes, np.array([0.5, 1.0])), [3.5 / 1.5, 2, 0])


def build(**settings):
    return FedCor(
        make_context(FedCorConfig(**({"warmup": 2, "interval": 4, "first_steps": 30, "steps": 5} | settings)), size=3)
    )


def test_the_process_begins_with_a_variance_of_one_for_each_client():
    """Each of 15 entries of a client's embedding has the variance 1/15."""
    method = FedCor(make_context(FedCorConfig(), clients=400, cohort=2, size=3))
    embeddings = method.state()["embeddings"]
    assert np.square(embeddings).sum(axis=0).mean() == pytest.approx(1.0, abs=0.1)


def candidates(method, number, **arguments):
    return method.candidates(make_roster(6, **arguments), RoundInfo(number, 20), 2, np.random.default_rng(0)).tolist()


def test_who_is_probed_when():
    """Warm-up rounds 1..3; observed rounds 5, 9, ... and the round after each."""
    method = build()
    assert method.needs(FedCorConfig()).loss_probe
    probed = [number for number in range(1, 12) if candidates(method, number)]
    assert probed == [1, 2, 3, 5, 6, 9, 10]
    assert candidates(method, 5, available=[1, 4]) == [1, 4]


def run(method, losses, **arguments):
    """Absorb a round for each row of losses, as the round does: select, then absorb with the roster's losses."""
    outcomes, rosters = [], []
    for number, row in enumerate(losses, start=1):
        roster = make_roster(6, losses=row, **arguments)
        method.whole_roster = roster
        clients = select(method, roster, number, 2, seed=number).clients.tolist()
        outcomes.append(outcome(RoundInfo(number, 20), clients, [dense([1, 0, 0])] * len(clients)))
        rosters.append(roster)
        method.update(outcomes[-1])
    return rosters, outcomes


def falling_losses(rounds, probed, seed=0):
    rng = np.random.default_rng(seed)
    losses = 5 - np.cumsum(rng.uniform(0, 0.3, (rounds, 6)), axis=0)
    losses[[number - 1 for number in range(1, rounds + 1) if number not in probed]] = np.nan
    return losses


def test_changes_of_observed_rounds_alone_are_remembered():
    method = build()
    losses = falling_losses(7, {1, 2, 3, 5, 6})
    run(method, losses)
    state = method.state()
    assert state["rounds"].tolist() == [2, 3, 6]
    np.testing.assert_allclose(state["changes"], [losses[1] - losses[0], losses[2] - losses[1], losses[5] - losses[4]])


def test_annealing_counts_selections_since_the_last_fit():
    method = build()
    _, outcomes = run(method, falling_losses(4, {1, 2, 3}))
    expected = np.ones(6)
    expected[outcomes[3].clients] = 0.95
    np.testing.assert_array_equal(method.state()["annealing"], expected)
    method.update(outcome(RoundInfo(7, 20), [], [], failed=[int(outcomes[3].clients[0])]))
    assert method.state()["annealing"][outcomes[3].clients[0]] == 0.95**2
    again = build()
    run(again, falling_losses(6, {1, 2, 3, 5, 6}))
    np.testing.assert_array_equal(again.state()["annealing"], 1)


def test_a_fit_is_to_the_changes_less_their_discounted_mean():
    """Observations of rounds 2 and 3 count .95 and 1 in round 3."""
    method = build()
    losses = falling_losses(3, {1, 2, 3})
    expected = method.state()["embeddings"].copy()
    run(method, losses)
    changes, weights = np.diff(losses, axis=0), np.array([0.95, 1.0])
    mean = (0.95 * changes[0] + changes[1]) / 1.95
    np.testing.assert_allclose(method.state()["embeddings"], fitted(expected, changes - mean, weights, 1e-4, 30))


def test_an_observation_is_kept_for_100_rounds_after_its_own():
    """The authors' code drops epoch e when e + group_size < now: of every round, 101 observations are left."""
    method = build(warmup=103)
    run(method, falling_losses(103, set(range(1, 104))))
    assert method.state()["rounds"].tolist() == list(range(3, 104))


def test_when_the_process_is_fitted():
    method = build()
    fits, losses = [], falling_losses(10, {1, 2, 3, 5, 6, 9, 10})
    for number in range(1, 11):
        before = method.state()["embeddings"].copy()
        method.whole_roster = make_roster(6, losses=losses[number - 1])
        method.update(outcome(RoundInfo(number, 20), [0, 1], [dense([1, 0, 0])] * 2))
        if not np.array_equal(before, method.state()["embeddings"]):
            fits.append(number)
    assert fits == [3, 6, 10]


def test_after_the_warmup_the_choice_is_the_greedy_one_by_id():
    method = build()
    run(method, falling_losses(3, {1, 2, 3}))
    roster = make_roster(6, available=[1, 3, 5], examples=[1, 9, 1, 3, 1, 4])
    ours = select(method, roster, 4, 2, seed=1)
    x = method.state()["embeddings"][:, [1, 3, 5]]
    expected = greedy(x, 1e-4, np.array([9, 3, 4]) / 16, np.ones(3), 2)[0]
    assert ours.clients.tolist() == sorted([1, 3, 5][position] for position in expected)
    assert ours.weights.tolist() == [1, 1]
    assert select(method, roster, 4, 2, seed=9).clients.tolist() == ours.clients.tolist()
    roster.available[5], roster.under_way[5] = False, True
    (expected,) = greedy(x, 1e-4, np.array([9, 3, 4]) / 16, np.ones(3), 1, np.array([2]))[0]
    assert select(method, roster, 4, 1).clients.tolist() == [[1, 3, 5][expected]]


def test_a_round_that_brought_nothing_is_no_observation():
    method = build()
    losses = falling_losses(2, {1, 2})
    method.whole_roster = make_roster(6, losses=losses[0])
    method.update(outcome(RoundInfo(1, 20), [], [], failed=[0, 1]))
    method.whole_roster = make_roster(6, losses=losses[1])
    method.update(outcome(RoundInfo(2, 20), [0], [dense([1, 0, 0])]))
    assert not method.state()["rounds"].size
