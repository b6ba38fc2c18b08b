import itertools
import math
import statistics

import numpy as np
import pytest
from flwr.server.strategy.aggregate import aggregate_krum, aggregate_median, aggregate_trimmed_avg
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import AggregationConfig, Settings
from fedsel_app.wire.codec import Update
from strategies.aggregation import robust
from strategies.aggregation.robust import FADING, EntryBounds
from strategies.aggregation.server_state import ServerState
from strategies.roster import Selection
from strategies.testing.fakes import dense, make_context
from tests.support.stubs import decoded, update_reply
from tests.support.updates import sparse


def combined(updates, rule, weights=None, **settings):
    weights = np.full(len(updates), 1 / len(updates)) if weights is None else weights
    return robust.combine(tuple(updates), weights, AggregationConfig(aggregation=rule, **settings))


def aggregate(updates, rule, weights=None, **settings):
    result = combined(updates, rule, weights, **settings)
    return result.aggregate, result.weights


def test_an_entry_counts_for_those_who_sent_it():
    updates = [sparse(4, [0, 1], [3, 4]), sparse(4, [0], [5]), sparse(4, [0, 3], [6, -8]), sparse(4, [0, 3], [4, -3])]
    # Norms 5, 5, 10, 5: the third update counts half. Entry 0: the median of 3, 5, 3, 4. Entry 1: 4 by one of four.
    # Entry 3: the median of -4 and -3, by two of four.
    result = combined(updates, "median")
    np.testing.assert_allclose(result.aggregate, [3.5, 4 / 4, 0.0, -3.5 * 2 / 4])
    np.testing.assert_array_equal(result.weights, [0.25] * 4)
    np.testing.assert_array_equal(result.taken, [1.0, 1.0, 0.5, 1.0])
    assert [update.values.tolist() for update in result.updates] == [[3, 4], [5], [3, -4], [4, -3]]
    # A quarter of the cohort is one at each end.
    trimmed = aggregate(updates, "trimmed-mean", trim_share=0.25)[0]
    np.testing.assert_allclose(trimmed, result.aggregate)


def test_below_the_quorum_the_clients_who_sent_an_entry_are_averaged():
    """Three of six are half of the cohort; three of seven are less."""
    updates = [sparse(2, [0], [4]), sparse(2, [0], [4]), sparse(2, [0], [-4]), *[sparse(2, [1], [4])] * 3]
    found, _ = aggregate(updates, "median")
    np.testing.assert_allclose(found, [4 * 3 / 6, 4 * 3 / 6])
    found, _ = aggregate([*updates, sparse(2, [1], [4])], "median")
    np.testing.assert_allclose(found, [4 / 7, 4 * 4 / 7])


def sparse_updates(size, most):
    row = st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=size, max_size=size)
    return st.lists(row, min_size=1, max_size=most)


def as_update(row):
    places = [place for place, value in enumerate(row) if value is not None]
    return Update(len(row), np.array(places, np.uint32), np.array([row[place] for place in places], np.float32))


def by_hand(rows, centre, clip=1.0):
    norms = [math.sqrt(sum((value or 0) ** 2 for value in row)) for row in rows]
    most = clip * statistics.median_low(norms)
    shares = [min(1, most / norm) if norm else 1 for norm in norms]
    expected = []
    for values in zip(*rows, strict=True):
        sent = sorted(value * share for value, share in zip(values, shares, strict=True) if value is not None)
        found = (centre if 2 * len(sent) >= len(rows) else statistics.fmean)(sent) if sent else 0.0
        expected.append(found * len(sent) / len(rows))
    return expected


def cut_a_fifth_of(cohort):
    def trimmed(ordered):
        for _ in range(-(-cohort // 5)):
            if len(ordered) > 2:
                ordered = ordered[1:-1]
        return statistics.fmean(ordered)

    return trimmed


@given(sparse_updates(7, 9), st.sampled_from([1.0, 2.0]))
def test_median_and_trimmed_mean_entry_by_entry(rows, clip):
    updates = [as_update(row) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(robust, "BLOCK", 3)
        found = aggregate(updates, "median", update_clip=clip)[0]
        np.testing.assert_allclose(found, by_hand(rows, statistics.median, clip), rtol=1e-5, atol=1e-5)
        found = aggregate(updates, "trimmed-mean", trim_share=0.2, update_clip=clip)[0]
        np.testing.assert_allclose(found, by_hand(rows, cut_a_fifth_of(len(rows)), clip), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [5, 10])
def test_dense_updates_as_flower_does_it(count):
    rng = np.random.default_rng(count)
    arrays = rng.normal(size=(count, 40)).astype(np.float32)
    updates, results = [dense(row) for row in arrays], [([row.astype(np.float64)], 1) for row in arrays]
    np.testing.assert_allclose(aggregate(updates, "median", update_clip=0.0)[0], aggregate_median(results)[0])
    found, _ = aggregate(updates, "trimmed-mean", trim_share=0.2, update_clip=0.0)
    np.testing.assert_allclose(found, aggregate_trimmed_avg(results, 0.2)[0])
    for malicious in (0, 1):
        settings = {"krum_malicious": malicious, "update_clip": 0.0}
        np.testing.assert_allclose(
            aggregate(updates, "krum", **settings)[0], aggregate_krum(results, malicious, 0)[0], rtol=1e-6
        )
        np.testing.assert_allclose(
            aggregate(updates, "multi-krum", **settings)[0],
            aggregate_krum(results, malicious, count - malicious)[0],
            rtol=1e-6,
        )


@given(sparse_updates(4, 7))
def test_krum_by_trying_every_set_of_neighbours(rows):
    updates = [as_update(row) for row in rows]
    full = [[value or 0 for value in row] for row in rows]
    scores = []
    for own in range(len(full)):
        others = [sum((a - b) ** 2 for a, b in zip(full[own], row, strict=True)) for row in full]
        del others[own]
        sets = itertools.combinations(others, min(max(len(full) - 1 - 2, 1), len(others)))
        scores.append(min(map(sum, sets)))
    best = scores.index(min(scores))
    found, weights = aggregate(updates, "krum", krum_malicious=1, update_clip=0.0)
    np.testing.assert_allclose(found, full[best])
    assert np.flatnonzero(weights).tolist() == [best]


def test_a_clipped_update_that_krum_chooses_is_taken_in_part():
    """Norms 1, 1, 4: with a clip of 2 times the median the third counts by half."""
    result = combined([dense([1.0]), dense([1.0]), dense([4.0])], "multi-krum", krum_malicious=0, update_clip=2.0)
    np.testing.assert_array_equal(result.taken, [1.0, 1.0, 0.5])


def test_krum_leaves_out_the_far_ones():
    updates = [dense([1.0, 1.0]), dense([1.5, 1.0]), dense([90.0, -90.0]), dense([1.0, 1.5]), dense([1.25, 1.25])]
    result = combined(updates, "multi-krum", krum_malicious=1, update_clip=2.0)
    np.testing.assert_array_equal(result.weights, [0.25, 0.25, 0.0, 0.25, 0.25])
    np.testing.assert_array_equal(result.taken, [1.0, 1.0, 0.0, 1.0, 1.0])
    np.testing.assert_allclose(result.aggregate, [4.75 / 4, 4.75 / 4])


def test_weights_count_by_their_sum_alone():
    updates = [dense([1.0]), dense([5.0]), dense([6.0])]
    for rule in ("median", "krum"):
        alike, claimed = (aggregate(updates, rule, np.array(w))[0] for w in ([1 / 3] * 3, [0.998, 0.001, 0.001]))
        np.testing.assert_allclose(alike, claimed)
    # An unbiased method's weights of sum 2 double the step.
    np.testing.assert_allclose(aggregate(updates, "median", np.array([1.0, 0.5, 0.5]))[0], [10.0])


def test_where_most_updates_are_zero_nothing_moves():
    result = combined([dense([0.0, 0.0])] * 2 + [dense([3.0, 4.0])], "median")
    assert result.aggregate.tolist() == [0.0, 0.0]
    assert result.taken.tolist() == [1.0, 1.0, 0.0]


SIZE, CLIENTS = 30, 8


def drawn(rng):
    places = np.sort(rng.choice(SIZE, 12, replace=False)).astype(np.uint32)
    return Update(SIZE, places, rng.normal(size=12).astype(np.float32))


@pytest.mark.parametrize("malicious", [1, 2, 3])
def test_bounds_are_those_of_a_table_of_all_clients(malicious):
    """By brute force: each client's fading largest size of each entry, and the f + 1-th of them."""
    rng, bounds, table = np.random.default_rng(4), EntryBounds(SIZE, malicious), np.zeros((CLIENTS, SIZE))
    for _ in range(25):
        clients = np.sort(rng.choice(CLIENTS, 4, replace=False))
        updates = [drawn(rng) for _ in clients]
        table *= FADING
        for client, update in zip(clients, updates, strict=True):
            table[client] = np.maximum(table[client], np.abs(update.dense()))
        most = np.sort(table, axis=0)[-(malicious + 1)]
        for update, cut in zip(updates, bounds.bound(clients, updates), strict=True):
            np.testing.assert_array_equal(cut.indices, update.indices)
            np.testing.assert_allclose(cut.dense(), np.clip(update.dense(), -most, most), rtol=1e-5)


def test_what_few_clients_alone_send_counts_for_nothing():
    bounds = EntryBounds(3, 2)
    honest = [dense([1.0, 0.5, 0.0]), dense([0.8, 0.4, 0.0]), dense([1.2, 0.6, 0.0])]
    liars = [dense([9.0, -9.0, 9.0])] * 2
    for _ in range(4):
        cut = bounds.bound(np.arange(5), [*honest, *liars])
        np.testing.assert_allclose(cut[4].values, [1.2, -0.6, 0.0], rtol=1e-6)
        np.testing.assert_allclose(cut[0].values, honest[0].values)


def server(**settings):
    context = make_context(Settings(), size=4, aggregation="median", **settings)
    return ServerState(context), context


def step(state, context, values, *, preview=False):
    clients = np.arange(len(values))
    replies = decoded({c: update_reply(dense(v), c, 1) for c, v in enumerate(values)}, clients, 1, 4)
    take = state.preview_step if preview else state.step
    return take(context.initial, Selection(clients), replies).aggregate


def test_the_server_bounds_entries_and_remembers_them():
    values = [[1.0, 1, 1, 0], [1.0, 1, 1, 0], [1.0, 1, 1, 0], [0.0, 0, 0, 1.5], [0.0, 0, 0, 1.5]]
    (open_, context), (bounded, _) = server(), server(entry_malicious=2)
    assert step(open_, context, values)[3] == 0.0  # all are dense here, and three votes against two
    assert step(bounded, context, values)[3] == 0.0
    before = {name: array.copy() for name, array in bounded.state().items()}
    other = [[2.0, 0, 0, 0]] * 5
    step(bounded, context, other, preview=True)
    assert all(np.array_equal(array, before[name]) for name, array in bounded.state().items())
    resumed, _ = server(entry_malicious=2)
    resumed.load_state(before)
    np.testing.assert_array_equal(step(resumed, context, other), step(bounded, context, other))
    assert "entry-bounds/sizes" in before
    assert not any(name.startswith("entry-bounds") for name in open_.state())
