"""Clustered sampling: unbiased rows, by enumeration and by hand."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.methods.clustered_sampling import ClusteredSampling
from strategies.roster import RoundInfo
from strategies.selection_math.sampling_rows import draw, rows_by_similarity
from strategies.selection_math.similarity import angles
from strategies.testing.fakes import dense, make_context, outcome
from tests.support.contexts import make_roster
from tests.support.selecting import select


def build():
    return ClusteredSampling(make_context(ClusteredSampling.Config(), clients=6, size=4))


def some_updates(clients, seed=0):
    rng = np.random.default_rng(seed)
    return [dense(rng.normal(size=4).tolist()) for _ in clients]


examples = st.lists(st.integers(1, 1000), min_size=2, max_size=12)


@given(examples, st.integers(1, 8), st.integers(0, 1000))
def test_rows_sum_to_one_and_columns_to_m_p(sizes, m, seed):
    """Also where some p_i exceed 1/m, where the authors' code is biased."""
    p = np.array(sizes) / sum(sizes)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(p.size, 3)) * rng.integers(0, 2, (p.size, 1))
    distances = angles(vectors @ vectors.T)
    rows = rows_by_similarity(p, distances, m, rng)
    assert rows.shape == (m, p.size)
    assert (rows >= 0).all()
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-7)
    np.testing.assert_allclose(rows.sum(axis=0), m * p, atol=1e-7)


def test_each_of_two_obvious_groups_has_a_row():
    vectors = np.array([[1, 0.0], [1, 0.01], [0, 1], [0.01, 1]])
    rows = rows_by_similarity(np.full(4, 0.25), angles(vectors @ vectors.T), 2, np.random.default_rng(0))
    assert {tuple(row) for row in rows.tolist()} == {(0.5, 0.5, 0, 0), (0, 0, 0.5, 0.5)}


def test_rows_pour_light_groups_into_the_kept_ones():
    """Three groups of mass .8, .7 and .5 in two rows: the lightest fills .3 of the one and .2 of the other."""
    vectors = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    rows = rows_by_similarity(np.array([0.4, 0.35, 0.25]), angles(vectors @ vectors.T), 2, np.random.default_rng(0))
    np.testing.assert_allclose(rows, [[0, 0.7, 0.3], [0.8, 0, 0.2]], atol=1e-12)


def test_a_client_larger_than_a_row_has_rows_of_its_own():
    vectors = np.eye(3)
    rows = rows_by_similarity(np.array([0.1, 0.8, 0.1]), angles(vectors @ vectors.T), 3, np.random.default_rng(0))
    np.testing.assert_allclose(rows[:2], [[0, 1, 0], [0, 1, 0]])
    np.testing.assert_allclose(rows[2], [0.3, 0.4, 0.3], atol=1e-12)


def test_clients_as_large_as_their_rows_leave_no_room():
    rows = rows_by_similarity(np.full(2, 0.5), np.ones((2, 2)), 2, np.random.default_rng(0))
    assert rows.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("total", [0.2, 1.0, 5.0])
def test_draws_follow_their_rows(total):
    rows = np.array([[0, 0.25, 0.75, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    rng = np.random.default_rng(0)
    drawn = np.array([draw(total * rows, rng) for _ in range(4000)])
    assert (drawn[:, 1] == 0).all()
    assert (drawn[:, 2] == 3).all()
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=4) / 4000, rows[0], atol=0.03)


def test_the_mean_weight_of_every_client_is_p():
    """Unbiasedness by enumeration of all draws from the rows, with weight multiplicity / m."""
    method = build()
    method.learn(outcome(RoundInfo(1, 10), [0, 2, 3, 5], some_updates(range(4))))
    roster = make_roster(6, examples=[10, 250, 30, 90, 70, 50])
    rows = method.rows(roster, 3, np.random.default_rng(4))
    mean = np.zeros(6)
    for drawn in product(range(6), repeat=3):
        chance = np.prod([rows[row, client] for row, client in enumerate(drawn)])
        mean += chance * np.bincount(drawn, minlength=6) / 3
    np.testing.assert_allclose(mean, np.array([10, 250, 30, 90, 70, 50]) / 500, atol=1e-9)


@pytest.mark.parametrize("count", [3, 4])
def test_where_few_are_available_all_take_part_with_weights_p(count):
    roster = make_roster(6, examples=[9, 10, 250, 9, 9, 140], available=[1, 2, 5])
    selection = select(build(), roster, 1, count)
    assert selection.clients.tolist() == [1, 2, 5]
    np.testing.assert_allclose(selection.weights / selection.weights.sum(), [0.025, 0.625, 0.35])


def test_a_client_drawn_in_several_rows_has_the_multiple_weight():
    method = build()
    roster = make_roster(6, examples=[1, 10**6, 1, 1, 1, 1])
    selection = select(method, roster, 1, method.context.run.cohort)
    assert selection.clients.tolist() == [1]
    assert selection.weights is not None
    assert selection.weights.tolist() == [1.0]
