"""The last update of each client, through a file and back, and inner products of them."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsel_app.config import ConfigError
from fedsel_app.wire.codec import Update
from strategies.checkpoint import scatter
from strategies.roster import RoundInfo
from strategies.selection_math import similarity
from strategies.selection_math.similarity import (
    LastUpdates,
    angles,
    blocks,
    euclidean,
    inner_products,
    layer_part,
    refreshed_gram,
)
from strategies.testing.fakes import dense, outcome
from tests.support.updates import sparse


@given(st.dictionaries(st.integers(0, 9), st.floats(-5, 5, width=32)), st.integers(0, 10), st.integers(0, 10))
def test_a_part_of_an_update_is_the_slice_of_its_dense_form(entries, a, b):
    start, stop = min(a, b), max(a, b)
    update = sparse(10, sorted(entries), [entries[place] for place in sorted(entries)])
    expected = update.dense()[start:stop]
    np.testing.assert_array_equal(layer_part(update, start, stop).dense(), expected)
    np.testing.assert_array_equal(layer_part(dense(update.dense().tolist()), start, stop).dense(), expected)


def test_the_gram_matrix_refreshes_a_few_clients_and_leaves_its_input_alone():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(4, 5)).astype(np.float32)
    updates = {k: dense(vectors[k].tolist()) for k in (0, 1, 3)}
    gram = refreshed_gram(np.zeros((4, 4)), updates, [0, 1, 3])
    vectors[2] = 0
    np.testing.assert_allclose(gram, vectors.astype(float) @ vectors.T.astype(float), atol=1e-12)
    updates[1] = sparse(5, [0, 4], [2.0, -1.0])
    again = refreshed_gram(gram, updates, [1])
    vectors[1] = (2, 0, 0, 0, -1)
    np.testing.assert_allclose(again, vectors.astype(float) @ vectors.T.astype(float), atol=1e-12)
    assert gram[1, 1] != again[1, 1]


def test_angles_by_hand():
    vectors = np.array([[1.0, 0], [1, 1], [-3, 0], [0, 0], [1, 0]])
    found = angles(vectors @ vectors.T)
    quarter = np.pi / 4
    expected = np.array(
        [
            [0, quarter, np.pi, 0, 0],
            [quarter, 0, 3 * quarter, 0, quarter],
            [np.pi, 3 * quarter, 0, 0, np.pi],
            [0, 0, 0, 0, 0],
            [0, quarter, np.pi, 0, 0],
        ]
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_cosines_beyond_one_by_rounding_are_no_trouble():
    vectors = np.random.default_rng(1).normal(size=(1, 30)) * np.array([[1.0], [1e-20], [1e18], [-7.3]])
    found = angles(vectors @ vectors.T)
    np.testing.assert_allclose(found[:3, :3], 0, atol=1e-7)
    np.testing.assert_allclose(found[3, :3], np.pi, atol=1e-7)
    beyond = 1 + 1e-15
    gram = np.array([[1, beyond, -beyond], [beyond, 1, -beyond], [-beyond, -beyond, 1]])
    np.testing.assert_array_equal(angles(gram), np.pi * np.array([[0, 0, 1], [0, 0, 1], [1, 1, 0]]))


def test_distances_are_euclidean_and_zero_between_equal_vectors():
    vectors = np.random.default_rng(2).normal(size=(6, 9))
    vectors[4] = vectors[1]
    found = euclidean(vectors @ vectors.T)
    for i in range(6):
        for j in range(6):
            np.testing.assert_allclose(found[i, j], np.linalg.norm(vectors[i] - vectors[j]), atol=1e-7)
    assert found[1, 4] == found[4, 1] == 0


@pytest.mark.parametrize(
    ("rows", "width", "entries", "found"),
    [
        (5, 1, 2, [[0, 1], [2, 3], [4]]),
        (5, 3, 6, [[0, 1], [2, 3], [4]]),
        (3, 9, 8, [[0], [1], [2]]),
        (3, 0, 2, [[0, 1], [2]]),
        (0, 4, 8, []),
    ],
)
def test_blocks_have_at_most_so_many_entries_or_one_row(rows, width, entries, found):
    assert [list(range(rows))[block] for block in blocks(rows, width, entries)] == found


@pytest.mark.parametrize("block", [1, 50, 2**16])
def test_many_products_at_a_time_are_those_of_one_update_bit_for_bit(monkeypatch, block):
    monkeypatch.setattr(similarity, "BLOCK_ENTRIES", block)
    rng = np.random.default_rng(3)
    size = 700
    updates = [dense(rng.normal(size=size)) for _ in range(4)]
    for count in (0, 1, 9, 300, 300, 300, 9):
        places = np.sort(rng.choice(size, count, replace=False)).astype(np.uint32)
        updates.insert(int(rng.integers(len(updates))), Update(size, places, rng.normal(size=count).astype(np.float32)))
    vectors = [rng.normal(size=size), updates[2].dense()]
    places = [slice(None) if update.indices is None else update.indices for update in updates]
    pairs = list(zip(updates, places, strict=True))
    expected = [[float((update.values * vector[at].astype(float)).sum()) for update, at in pairs] for vector in vectors]
    assert inner_products(updates, vectors).tolist() == expected
    assert inner_products([], vectors).shape == (2, 0)


def test_angles_and_distances_are_the_same_a_few_rows_at_a_time(monkeypatch):
    vectors = np.random.default_rng(4).normal(size=(9, 3))
    vectors[4] = 0.0
    gram = vectors @ vectors.T
    whole = angles(gram), euclidean(gram)
    monkeypatch.setattr(similarity, "BLOCK_ENTRIES", 20)
    np.testing.assert_array_equal((angles(gram), euclidean(gram)), whole)


SPARSE = Update(4, np.array([1, 3], np.uint32), np.array([5.0, 6.0], np.float32))


def filled():
    kept = LastUpdates()
    kept.add(outcome(RoundInfo(1, 10), [0, 2], [dense([1.0, 2.0, 3.0, 4.0]), SPARSE]))
    kept.add(outcome(RoundInfo(2, 10), [0], [dense([9.0, 9.0, 9.0, 9.0])], failed=[2]))
    return kept


def test_the_newest_of_each_client_is_kept_and_a_failure_changes_nothing():
    kept = filled()
    assert sorted(kept) == [0, 2]
    assert kept[0].values.tolist() == [9.0] * 4
    assert kept[2] is SPARSE


def test_they_go_through_a_file():
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **filled().state())
    file.seek(0)
    again = LastUpdates()
    again.load_state(dict(np.load(file, allow_pickle=False)))
    for client, update in filled().items():
        assert again[client] == update
    again.load_state(LastUpdates().state())
    assert not again


@pytest.mark.parametrize(
    "state",
    [
        filled().state() | {"payloads": np.zeros(70, np.uint8)},
        filled().state() | {"clients": np.array([0])},
        {"clients": np.array([0]), "size-0": np.array(2), "values-0": np.ones(2, np.float32)},
    ],
    ids=["payloads", "clients", "an earlier form"],
)
def test_a_state_that_is_not_of_such_updates_is_refused(state):
    state = {f"last-updates/{name}": array for name, array in state.items()}
    with pytest.raises(ConfigError, match=r"state of its last-updates cannot be loaded.*Start the run again"):
        scatter(state, {"last-updates": LastUpdates()})
