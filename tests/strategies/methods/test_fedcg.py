"""FedCG: the linear programme against scipy's, the greedy step against all marginal gains, and their alternation."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from strategies.methods.fedcg import FedCG, Problem, best_deadline, cover, relative_distances, represented
from strategies.roster import RoundInfo
from strategies.round.budget import fitting_fractions
from strategies.testing.fakes import make_context, outcome
from tests.support.contexts import seen_roster
from tests.support.points import POINTS, distances_of, points_outcome
from tests.support.selecting import select

EVERYBODY = np.ones(5, bool)


@pytest.mark.parametrize("seed", range(25))
def test_the_deadline_solves_the_linear_programme(seed):
    """linprog over (T, theta): min T - V sum gamma theta, a + theta u <= T."""
    rng = np.random.default_rng(seed)
    m, least = 5, 0.05
    compute_s, upload_s = rng.uniform(5, 25, m), rng.uniform(2, 40, m)
    gamma, price = rng.uniform(0, 6, m), rng.uniform(0, 5)
    deadline = best_deadline(compute_s, upload_s, gamma, price, least)
    theta = fitting_fractions(deadline, compute_s, upload_s, least)
    assert (compute_s + theta * upload_s <= deadline + 1e-9).all()
    solution = linprog(
        np.concatenate([[1.0], -price * gamma]),
        A_ub=np.column_stack([-np.ones(m), np.diag(upload_s)]),
        b_ub=-compute_s,
        bounds=[(0, None)] + [(least, 1.0)] * m,
    )
    assert deadline - price * (gamma @ theta) == pytest.approx(solution.fun)


@pytest.mark.parametrize(("count", "chosen"), [(1, [1]), (2, [1, 3]), (3, [0, 1, 3])])
def test_the_reference_points_are_covered(count, chosen):
    assert cover(distances_of(POINTS), count, EVERYBODY).tolist() == chosen


def test_every_greedy_step_has_the_largest_gain():
    rng = np.random.default_rng(5)
    for _ in range(20):
        costs = distances_of(rng.normal(size=(7, 2))) + rng.uniform(0, 1, (7, 1))
        allowed = np.ones(7, bool)
        allowed[rng.integers(7)] = False
        previous = []
        for count in range(1, 6):
            round_info = cover(costs, count, allowed).tolist()
            assert set(previous) < set(round_info)
            gains = {i: costs[[*previous, i]].min(axis=0).sum() for i in np.flatnonzero(allowed) if i not in previous}
            assert costs[round_info].min(axis=0).sum() == pytest.approx(min(gains.values()))
            previous = round_info


def test_clients_are_represented_by_the_nearest_and_shared_between_equals():
    assert represented(distances_of(POINTS), np.array([1, 3])).tolist() == [3.0, 2.0]
    line = distances_of([(0, 0), (2, 0), (1, 0), (9, 0)])
    assert represented(line, np.array([0, 1])).tolist() == [1.5, 2.5]


def test_distances_are_relative_to_the_mean_of_the_known():
    found = relative_distances(distances_of([(0, 0), (3, 0), (0, 0), (9, 9)]), np.array([True, True, True, False]))
    np.testing.assert_allclose(found, [[0, 1.5, 0, 1], [1.5, 0, 1.5, 1], [0, 1.5, 0, 1], [1, 1, 1, 0]])
    short = relative_distances(distances_of([(0, 0), (0.1, 0)]), np.ones(2, bool))
    np.testing.assert_allclose(short, [[0, 1], [1, 0]])
    nobody = relative_distances(np.zeros((2, 2)), np.zeros(2, bool))
    assert nobody.tolist() == [[0, 1], [1, 0]]
    same = relative_distances(np.zeros((2, 2)), np.ones(2, bool))
    assert same.tolist() == [[0, 0], [0, 0]]


def value_by_hand(distances, cohort, theta, deadline, full_s, weight):
    """T + V [sum_j d(j, nearest) + 0.2 sum gamma (1 - theta)] by loops; no two clients are equally near."""
    price, error = weight * full_s.mean() / len(distances), 0.0
    for j in range(len(distances)):
        nearest = min(range(len(cohort)), key=lambda i: distances[cohort[i], j])
        error += distances[cohort[nearest], j] + 0.2 * (1 - theta[nearest])
    return deadline + price * error


@pytest.mark.parametrize("weight", [0.2, 1.0, 5.0])
def test_the_alternation_is_consistent_and_near_the_best_cohort(weight):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        distances = distances_of(rng.normal(size=(7, 2)))
        distances /= distances.sum() / 42
        compute_s, upload_s = rng.uniform(5, 25, 7), rng.uniform(5, 40, 7)
        problem = Problem(distances, compute_s, upload_s, 0.05, weight)
        found = problem.solve(3)
        assert found.value == pytest.approx(
            value_by_hand(distances, found.cohort, found.fractions, found.deadline_s, compute_s + upload_s, weight)
        )
        every = [problem.ratios(np.array(cohort)).value for cohort in combinations(range(7), 3)]
        assert min(every) <= found.value + 1e-9
        assert found.value <= np.quantile(every, 0.25)
        assert found.value <= problem.ratios(cover(distances, 3, np.ones(7, bool))).value


def test_of_twins_the_one_with_the_fast_link_is_taken():
    """Diversity alone takes the lowest id; its slow link costs more than the twin's fast one."""
    distances = distances_of([(0, 0), (0, 0), (4, 4), (4, 4)]) / 4
    upload_s = np.array([60.0, 1.0, 1.0, 60.0])
    problem = Problem(distances, np.full(4, 10.0), upload_s, 0.01)
    assert problem.solve(2).cohort.tolist() == [1, 2]
    assert problem.cohort(20.0, 2).tolist() == [1, 2]  # those that send all of it by then, not a sixth


def test_the_alternation_starts_without_a_deadline_and_from_finish_times():
    """The second and third client can finish after 4 and 7 s with the least update, and all after 11, 22 and 34 s with
    a full one. An error that costs this much is never made, so every cohort waits for full updates."""
    asked = set()

    class Recorded(Problem):
        def cohort(self, deadline_s, count):
            asked.add(deadline_s)
            return super().cohort(deadline_s, count)

    times = np.array([1.0, 2, 4]), np.array([10.0, 20, 30])
    Recorded(distances_of(POINTS[:3]), *times, 0.1, 1e6).solve(2)
    assert asked == {4, 7, 11, 22, 34, np.inf}


def build(compressor="top-k"):
    settings = {"compressor": compressor, "kept_fraction": 0.2}
    return FedCG(make_context(FedCG.Config(), clients=5, size=2, **settings))


def test_weights_and_ratios_of_a_selection():
    method = build()
    method.learn(points_outcome())
    chosen = select(method, seen_roster(), 2, 2)
    assert chosen.clients.tolist() == [1, 3]
    assert chosen.weights.tolist() == [3.0, 2.0]
    assert chosen.normalise
    assert ((chosen.kept_fractions >= 0.01) & (chosen.kept_fractions <= 1)).all()


def test_clients_that_never_answer_do_not_block_the_others():
    method, roster = build(), seen_roster()
    method.learn(points_outcome(1, [0, 1, 3], failed=[2, 4]))
    chosen = select(method, roster, 2, 3)
    assert chosen.weights.sum() == pytest.approx(5.0)
    assert {tuple(select(method, roster, 2, 3, seed).clients) for seed in range(9)} == {tuple(chosen.clients)}
    nothing = build()
    nothing.learn(outcome(RoundInfo(1, 10), [], [], failed=[0, 1]))
    assert len({tuple(select(nothing, roster, 2, 2, seed).clients) for seed in range(20)}) > 3


def test_who_is_away_neither_comes_nor_is_represented():
    method = build()
    method.learn(points_outcome())
    chosen = select(method, seen_roster(available=[0, 2, 3]), 2, 2)
    assert chosen.clients.tolist() == [2, 3]
    assert chosen.weights.tolist() == [2.0, 1.0]


def test_without_sparse_updates_only_the_cohort_is_chosen():
    method = build(compressor="none")
    method.learn(points_outcome())
    chosen = select(method, seen_roster(), 2, 2)
    assert chosen.kept_fractions.tolist() == [1.0, 1.0]
    # 50 steps of 0.3 s, and two float32 at 3 Mb/s.
    np.testing.assert_allclose(chosen.components["deadline_s"], 15 + 64 / 3e6, rtol=1e-12)
