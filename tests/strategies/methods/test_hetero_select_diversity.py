"""Eq. 3 of HeteRo-Select: diversity, its running average, and the sketch that stands in for whole updates."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.wire.codec import Update
from strategies.methods.hetero_select import CountSketch, HeteroSelect, HeteroSelectConfig
from strategies.roster import RoundInfo
from strategies.testing.fakes import dense, make_context, make_roster, outcome

SIZE = 4


def method(clients=4, size=SIZE, **config):
    return HeteroSelect(make_context(HeteroSelectConfig(**config), clients=clients, size=size))


def diversity_of(selector, clients=4):
    return selector.select(make_roster(clients), RoundInfo(3, 10), clients, np.random.default_rng(0)).components[
        "diversity"
    ]


def test_diversity_by_hand():
    selector = method()
    sparse = Update(SIZE, np.array([1], np.uint32), np.array([2.0], np.float32))
    selector.learn(outcome(RoundInfo(1, 10), [0, 2], [dense([1.0, 0.0, 0.0, 0.0]), sparse]))
    # The aggregate is (0.5, 1, 0, 0): cosines 0.5 / sqrt(1.25) = 0.447214 and 1 / sqrt(1.25) = 0.894427.
    np.testing.assert_allclose(diversity_of(selector), [0.552786, 0.5, 0.105573, 0.5], atol=1e-6)
    # Client 3 turns the average to (-2, 0, 0, 0): client 0 points the other way (clipped), client 2 is orthogonal.
    selector.learn(outcome(RoundInfo(2, 10), [3], [dense([-2.0, 0.0, 0.0, 0.0])]))
    np.testing.assert_allclose(diversity_of(selector), [1.0, 0.5, 1.0, 0.0], atol=1e-6)


def test_a_client_that_failed_keeps_its_last_update_and_an_empty_round_changes_nothing():
    selector = method()
    selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 1.0, 0.0, 0.0])], failed=[1]))
    before = diversity_of(selector)
    np.testing.assert_allclose(before, [0.0, 0.5, 0.5, 0.5], atol=1e-6)
    selector.learn(outcome(RoundInfo(2, 10), [], [], failed=[0, 1]))
    np.testing.assert_array_equal(diversity_of(selector), before)


@given(st.integers(0, 2**31))
def test_diversity_is_one_less_the_dense_cosine(seed):
    rng = np.random.default_rng(seed)
    selector, last = method(5, 30), {}
    for number in (1, 2, 3):
        clients = np.sort(rng.choice(5, 2, replace=False)).tolist()
        updates = []
        for client in clients:
            indices = np.sort(rng.choice(30, 12, replace=False)).astype(np.uint32)
            updates.append(Update(30, indices, rng.normal(size=12).astype(np.float32)))
            last[client] = updates[-1].dense().astype(np.float64)
        result = outcome(RoundInfo(number, 10), clients, updates)
        selector.learn(result)
    expected = np.full(5, 0.5)
    for client, vector in last.items():
        cosine = vector @ result.aggregate / np.linalg.norm(vector) / np.linalg.norm(result.aggregate)
        expected[client] = min(max(1.0 - cosine, 0.0), 1.0)
    np.testing.assert_allclose(diversity_of(selector, 5), expected, atol=1e-6)


def test_the_authors_running_average_by_hand():
    selector = method(average_decay=0.9)
    selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 0.0, 0.0, 0.0])]))
    selector.learn(outcome(RoundInfo(2, 10), [1], [dense([0.0, 1.0, 0.0, 0.0])]))
    # 0.1 (1, 0), then 0.9 * 0.1 (1, 0) + 0.1 (0, 1) = (0.09, 0.1), of norm sqrt(0.0181) = 0.134536:
    # cosines 0.09 / 0.134536 = 0.668965 and 0.1 / 0.134536 = 0.743294.
    np.testing.assert_allclose(diversity_of(selector), [0.331035, 0.256706, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(selector.state()["average"], [0.09, 0.1, 0.0, 0.0])


def test_the_average_may_start_as_the_first_aggregate():
    """0.9 (1, 0) + 0.1 (0, 1) = (0.9, 0.1); from zero it is 0.9 (0.1, 0) + 0.1 (0, 1) = (0.09, 0.1)."""
    expected = {"first": 1 - 0.9 / math.hypot(0.9, 0.1), "zero": 1 - 0.09 / math.hypot(0.09, 0.1)}
    for start, diversity in expected.items():
        selector = method(average_decay=0.9, average_start=start, size=2)
        selector.learn(outcome(RoundInfo(1, 10), [0], [dense([1.0, 0.0])]))
        selector.learn(outcome(RoundInfo(2, 10), [1], [dense([0.0, 1.0])]))
        np.testing.assert_allclose(diversity_of(selector)[0], diversity, atol=1e-6)


def correlated(rng, size):
    """Two unit vectors whose entries are mostly positive: without signs, what collides would add up."""
    first = 1.0 + rng.normal(size=size)
    second = 0.6 * first + 0.8 * rng.normal(size=size)
    return [dense((vector / np.linalg.norm(vector)).tolist()) for vector in (first, second)]


def test_a_sketch_keeps_inner_products_within_its_bound():
    # For unit vectors: unbiased, with a variance of at most 2 / buckets.
    buckets, draws = 64, 2000
    x, y = correlated(np.random.default_rng(0), 500)
    exact = x.dot(y.dense())
    errors = []
    for seed in range(draws):
        sketch = CountSketch(500, buckets, np.random.default_rng(seed))
        errors.append(sketch(x).dot(sketch(y).dense()) - exact)
    bound = math.sqrt(2 / buckets)
    assert abs(np.mean(errors)) < 4 * bound / math.sqrt(draws)
    assert np.std(errors) < 1.05 * bound


def test_a_sketch_is_linear_and_takes_sparse_updates():
    sketch = CountSketch(100, 16, np.random.default_rng(1))
    indices = np.array([3, 50, 99], np.uint32)
    sparse = Update(100, indices, np.array([1.0, -2.0, 4.0], np.float32))
    np.testing.assert_array_equal(sketch(sparse).values, sketch(dense(sparse.dense().tolist())).values)
    singles = [sketch(Update(100, indices[[i]], sparse.values[[i]])).values for i in range(3)]
    np.testing.assert_allclose(sketch(sparse).values, sum(singles))
    assert all(np.count_nonzero(single) == 1 for single in singles)


def test_sketched_diversity_is_near_the_exact_one():
    size, buckets = 3000, 1024
    exact, sketched = method(8, size), method(8, size, sketch_size=buckets)
    rng = np.random.default_rng(5)
    common = rng.normal(size=size)
    updates = [dense((common + rng.normal(size=size)).tolist()) for _ in range(8)]
    for selector in (exact, sketched):
        selector.learn(outcome(RoundInfo(1, 10), list(range(8)), updates))
    error = diversity_of(sketched, 8) - diversity_of(exact, 8)
    # Four standard errors of the bound for one inner product.
    assert np.abs(error).max() < 4 * math.sqrt(2 / buckets)
    assert [update.size for update in sketched.last_updates.values()] == [buckets] * 8
