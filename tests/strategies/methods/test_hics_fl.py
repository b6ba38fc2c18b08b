"""HiCS-FL: entropies and distances of the reference, laws of the draws, the first pass."""

from itertools import combinations

import numpy as np
import pytest

from strategies.methods.hics_fl import HiCSFL, HiCSFLConfig, client_distances, draw_by_examples, entropies, group_logits
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import seen_roster
from tests.support.selecting import selections

BIASES = np.array([(0.004, -0.001, -0.001, -0.002), (0.001, 0.0005, -0.0005, -0.001), (-0.003, 0.005, -0.001, -0.001)])


def test_the_reference_entropies_and_distances():
    """Softmax of the rows over T = .0015 is (.917714, .032739, .032739, .016809), (.425893, .305166, .156677, .112264)
    and (.004636, .960191, .017587, .017587), with entropies .371360, 1.261652 and .206039. In units of 1e-6 the inner
    products are 6, -14 and 1 and the squares 22, 2.5 and 36, so that the angles are arccos(6 / sqrt(55)) = .628280,
    arccos(-14 / sqrt(792)) = 2.091474 and arccos(1 / sqrt(90)) = 1.465191; to them comes 10 |H_u - H_k|."""
    entropy = entropies(BIASES, 0.0015)
    np.testing.assert_allclose(entropy, [0.371360, 1.261652, 0.206039], atol=1e-6)
    found = client_distances(BIASES, entropy, 10.0)
    np.testing.assert_allclose(found[[0, 0, 1], [1, 2, 2]], [9.53120, 3.74469, 12.02132], atol=1e-5)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diagonal(found), 0)


def test_entropies_of_extreme_vectors():
    vectors = np.array([[0.0, 0, 0, 0], [1e30, 0, 0, 0], [-1e30, -1e30, 0, 0]])
    np.testing.assert_allclose(entropies(vectors, 1e-3), [np.log(4), 0, np.log(2)], atol=1e-12)


def test_groups_are_preferred_by_mean_entropy():
    labels, entropy = np.array([0, 1, 0]), np.array([1.0, 0.5, 2.0])
    np.testing.assert_allclose(group_logits(labels, entropy, 4.0), [6, 2])
    np.testing.assert_allclose(group_logits(labels, entropy, 0.0), [0, 0])


def test_sets_of_draws_are_those_of_repeating_until_two_are_found():
    """The paper's loop draws client k with u_k = pi_g n_k / n_g = (.225, .14, .075, .56) and throws repeats away, so
    that {a, b} comes with u_a u_b (1 / (1 - u_a) + 1 / (1 - u_b))."""
    labels, pi, examples = np.array([0, 1, 0, 1]), np.array([0.3, 0.7]), np.array([30, 5, 10, 20])
    u, rng = [0.225, 0.14, 0.075, 0.56], np.random.default_rng(1)
    found = [
        tuple(draw_by_examples(labels, np.log(pi), examples, 2, rng, np.arange(examples.size)).tolist())
        for _ in range(4000)
    ]
    for a, b in combinations(range(4), 2):
        chance = u[a] * u[b] * (1 / (1 - u[a]) + 1 / (1 - u[b]))
        assert found.count((a, b)) / 4000 == pytest.approx(chance, abs=0.03)


def build(clients=6, **settings):
    """Body 0..5, weight 6..7 is 2 x 2 at 6..9, bias at 10..11."""
    return HiCSFL(make_context(HiCSFLConfig(**settings), clients=clients, size=12, classes=2))


def update(bias, weight=(0, 0, 0, 0)):
    return dense([9.0] * 6 + list(weight) + list(bias))


def balanced_and_not():
    """Clients 0..2 with balanced labels, 3..5 with one-sided ones."""
    biases = [(0.001, 0.001), (0.001, 0.0011), (0.0012, 0.001), (0.02, -0.02), (0.021, -0.02), (0.02, -0.021)]
    return outcome(RoundInfo(1, 10), range(6), [update(bias) for bias in biases])


def test_balanced_clients_are_preferred_early_and_not_at_the_end():
    method = build()
    method.update(balanced_and_not())
    early = np.concatenate([drawn.clients for drawn in selections(method, seen_roster(6), 2, 2, 100)])
    late = np.concatenate([drawn.clients for drawn in selections(method, seen_roster(6), 10, 2, 200)])
    assert np.mean(early < 3) > 0.8
    assert 0.4 < np.mean(late < 3) < 0.6


def test_a_place_is_filled_from_the_clusters_of_the_whole_cohort():
    """With 0 and 1 under way there are three clusters. One cluster of the four others would be a draw by examples."""
    method, roster = build(), seen_roster(6, available=[2, 3, 4, 5])
    method.update(balanced_and_not())
    roster.under_way[:2] = True
    drawn = np.concatenate([drawn.clients for drawn in selections(method, roster, 2, 1, 100)])
    assert np.mean(drawn == 2) > 0.8


def test_who_sent_nothing_counts_with_the_mean_entropy():
    method = build(temperature=0.001)
    method.update(outcome(RoundInfo(1, 10), [0, 2], [update((0, 0)), update((1, 0))]))
    np.testing.assert_allclose(method.entropy(np.arange(3)), [np.log(2), np.log(2) / 2, 0], atol=1e-12)
