"""FedCVR-Bolt: the O(K D) recursion against full covariance matrices, coalitions, and the Boltzmann draw."""

import numpy as np
import pytest

from strategies.methods.fedcvr_bolt import (
    FedCVRBolt,
    FedCVRBoltConfig,
    boltzmann_cohort,
    expected_models,
    find_coalitions,
    moved_covariance,
    normalised,
    variance_reduction,
)
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select

CLIENTS, SIZE, LAYER = 8, 12, slice(6, 12)


def full_variance_reduction(covariances, alpha):
    """v_k = sum_d (C^d alpha)_k^2 / C^d_kk from K x K matrices."""
    value = np.zeros(len(alpha))
    for matrix in covariances:
        for k in range(len(alpha)):
            if matrix[k, k] > 0:
                value[k] += (matrix @ alpha)[k] ** 2 / matrix[k, k]
    return value


def test_the_recursion_equals_full_matrices():
    rng = np.random.default_rng(0)
    clients, coordinates = 7, 5
    alpha = rng.dirichlet(np.ones(clients))
    start = rng.uniform(0.1, 1, coordinates)
    covariances = [np.eye(clients) * variance for variance in start]
    products, diagonal = np.outer(alpha, start), np.tile(start, (clients, 1))
    for step in (0.9, 0.5, 1 / 3, 1.0, 0.25, 0.2):
        deltas = rng.normal(size=(clients, coordinates)) * (rng.random((clients, coordinates)) < 0.7)
        covariances = [
            (1 - step) * matrix + step * np.outer(deltas[:, d], deltas[:, d]) for d, matrix in enumerate(covariances)
        ]
        products, diagonal = moved_covariance(products, diagonal, deltas, alpha, step)
        np.testing.assert_allclose(products, np.array([matrix @ alpha for matrix in covariances]).T, atol=1e-15)
        np.testing.assert_allclose(diagonal, np.array([np.diag(matrix) for matrix in covariances]).T, atol=1e-15)
        np.testing.assert_allclose(
            variance_reduction(products, diagonal), full_variance_reduction(covariances, alpha), rtol=1e-12
        )


def cosine(a, b):
    scale = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / scale if scale else 0.0


def test_the_method_follows_algorithm_1_written_out():
    """Six rounds after the warm-up, failures among them, with every C^d kept as a matrix."""
    rng = np.random.default_rng(4)
    config = FedCVRBoltConfig(warmup_rounds=2)
    method = FedCVRBolt(make_context(config, clients=CLIENTS, size=SIZE, cohort=3))
    roster = make_roster(CLIENTS, examples=rng.integers(20, 200, CLIENTS))
    method.whole_roster = roster
    alpha = roster.examples / roster.examples.sum()
    models = np.zeros((CLIENTS, 6))

    def trained(number, clients, failed=()):
        start = rng.normal(size=SIZE).astype(np.float32)
        moves = {k: rng.normal(size=SIZE).astype(np.float32) for k in clients}
        updates = [dense(moves[k]) for k in clients]
        result = outcome(RoundInfo(number, 10), clients, updates, failed=failed, parameters=start)
        return result, {k: start[LAYER].astype(float) + moves[k][LAYER] for k in clients}

    for number, cohort in ((1, [0, 1, 2, 3]), (2, [1, 4, 5, 6])):
        result, new = trained(number, cohort)
        method.update(result)
        for k in cohort:
            models[k] = new[k]
    covariances = [np.eye(CLIENTS) * models[:, d].var() for d in range(6)]
    expected = models.copy()

    for age in range(1, 7):
        number = age + 2
        chosen = select(method, roster, number, 3, seed=age)
        np.testing.assert_allclose(
            chosen.components["variance_reduction"],
            full_variance_reduction(covariances, alpha)[chosen.clients],
            rtol=1e-9,
        )
        labels = method.state()["labels"]
        failed = [int(chosen.clients[0])] if age % 2 else []
        result, new = trained(number, [k for k in chosen.clients.tolist() if k not in failed], failed)
        before = models.copy()
        for j, model in new.items():
            models[j] = model
            for k in np.flatnonzero(labels == labels[j]):
                expected[k] = model if k == j else cosine(before[k], before[j]) * model
        for d in range(6):
            delta = models[:, d] - expected[:, d]
            covariances[d] = (1 - 1 / age) * covariances[d] + 1 / age * np.outer(delta, delta)
        method.update(result)
        np.testing.assert_allclose(method.state()["models"], models)
        np.testing.assert_allclose(method.state()["expected"], expected, atol=1e-12)


def test_the_normalisation_by_hand():
    models = np.array([[1.0, 2, 0], [3, 2, 4], [5, 2, -4]])
    np.testing.assert_allclose(normalised(models), models / np.sqrt([[5], [29], [45]]))
    np.testing.assert_array_equal(normalised(np.zeros((2, 2))), 0)


def test_of_two_that_trained_the_more_similar_one_tells_what_to_expect():
    before = np.array([[1.0, 0], [0, 2], [3, 0.1], [5, 5]])
    after = before + np.array([[1.0, 1], [1, 1], [0, 0], [0, 0]])
    found = expected_models(np.full((4, 2), -9.0), before, after, np.array([0, 0, 0, 1]), np.array([0, 1]))
    near = 3 / np.hypot(3, 0.1)
    np.testing.assert_allclose(found, [[2, 1], [1, 3], [2 * near, near], [-9, -9]])


def directions(counts, spread, seed=0):
    """Clients around as many orthogonal directions, of any length."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(counts)), counts)
    points = 5 * np.eye(6)[groups] + spread * rng.normal(size=(groups.size, 6))
    return points * rng.uniform(0.2, 3, (groups.size, 1)), groups


@pytest.mark.parametrize("landmarks", [256, 12])
def test_similar_clients_form_coalitions(landmarks):
    """With 12 landmarks of 60 the others join their nearest."""
    points, groups = directions([20, 25, 15], 0.3)
    labels = find_coalitions(normalised(points), 3, landmarks, np.random.default_rng(0))
    for group in range(3):
        assert len(set(labels[groups == group])) == 1
    assert sorted(set(labels)) == [0, 1, 2]


def test_more_coalitions_than_kinds_of_models_are_the_same_wherever_the_models_lie_in_memory():
    """A tie that ARPACK breaks by how sums happen to be aligned."""
    models = np.repeat(np.eye(3), 34, axis=0)
    memory = np.zeros(models.size + 8)
    found = []
    for offset in range(8):
        moved = memory[offset : offset + models.size].reshape(models.shape)
        moved[:] = models
        found.append(find_coalitions(normalised(moved), 10, 256, np.random.default_rng(0)))
    assert all((labels == found[0]).all() for labels in found)


def test_the_draw_inside_a_coalition_is_boltzmann():
    values, labels = np.array([1.0, 2.0, 3.0, 700.0, 701.0]), np.array([0, 0, 0, 1, 1])
    drawn = np.zeros(5)
    rng = np.random.default_rng(2)
    for _ in range(4000):
        cohort = boltzmann_cohort(values, labels, 2, 1.0, rng)
        assert labels[cohort].tolist() == [0, 1]
        drawn[cohort] += 1
    first, second = np.exp([1, 2, 3]), np.exp([0, 1])
    expected = np.concatenate([first / first.sum(), second / second.sum()])
    assert np.abs(drawn / 4000 - expected).max() < 0.03
    greedy = boltzmann_cohort(values, labels, 2, 1e3, rng)
    assert greedy.tolist() == [2, 4]


def test_free_seats_go_to_the_largest_coalitions():
    labels, rng = np.array([3, 3, 3, 3, 5, 5, 8]), np.random.default_rng(0)
    for _ in range(20):
        assert sorted(labels[boltzmann_cohort(np.zeros(7), labels, 5, 1.0, rng)]) == [3, 3, 3, 5, 8]
        assert sorted(labels[boltzmann_cohort(np.zeros(7), labels, 2, 1.0, rng)]) == [3, 5]
    assert boltzmann_cohort(np.zeros(7), labels, 7, 1.0, rng).tolist() == list(range(7))


def build(**changes):
    settings = {"warmup_rounds": 1, **changes}
    return FedCVRBolt(make_context(FedCVRBoltConfig(**settings), clients=CLIENTS, size=SIZE, cohort=2))


def test_only_the_output_layer_is_compared():
    """Of 13 parameters, 7 are the body's and 6 the output layer's; `coordinates` draws some of them."""
    for wanted, kept in ((0, 6), (4, 4), (6, 6), (9, 6)):
        method = FedCVRBolt(make_context(FedCVRBoltConfig(coordinates=wanted), clients=CLIENTS, size=13, cohort=2))
        assert method.state()["models"].shape == (CLIENTS, kept)


def grouped(number, clients=range(CLIENTS), failed=()):
    """Clients 0-3 pull the output layer one way, the others another."""
    updates = []
    for client in clients:
        values = np.zeros(SIZE)
        values[6 if client < 4 else 9] = 1 + 0.1 * client + 0.01 * number
        updates.append(dense(values))
    return outcome(RoundInfo(number, 10), clients, updates, failed=failed)


def test_one_client_of_each_coalition_after_the_warm_up():
    method, roster = build(), make_roster(CLIENTS)
    method.whole_roster = roster
    method.update(grouped(1))
    for seed in range(20):
        chosen = select(method, roster, 2, 2, seed).clients
        assert (chosen < 4).sum() == 1
    four = select(method, roster, 2, 4)  # not the cohort's size: four coalitions are found for it
    assert len(set(four.components["coalition"])) == 4


def test_a_coalition_that_is_away_leaves_its_seat_to_the_other():
    method, roster = build(), make_roster(CLIENTS, available=[4, 6, 7])
    method.whole_roster = roster
    method.update(grouped(1))
    assert set(select(method, roster, 2, 2).clients) < {4, 6, 7}
    assert select(method, roster, 2, 3).clients.tolist() == [4, 6, 7]


def test_large_layers_are_read_at_coordinates_drawn_once():
    first, second = (build(coordinates=3).state()["models"] for _ in range(2))
    assert first.shape == second.shape == (CLIENTS, 3)
    method = build(coordinates=3)
    method.update(outcome(RoundInfo(1, 10), [2], [dense(range(SIZE))]))
    read = method.state()["models"][2]
    assert (np.diff(read) > 0).all()
    assert set(read) < set(range(6, 12))
