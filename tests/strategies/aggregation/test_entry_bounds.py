import numpy as np
import pytest

from fedsel_app.config import Settings
from fedsel_app.wire.codec import Update
from strategies.aggregation.entry_bounds import FADING, EntryBounds
from strategies.aggregation.server_state import ServerState
from strategies.roster import Selection
from strategies.testing.fakes import dense, make_context
from tests.support.stubs import decoded, update_reply

SIZE, CLIENTS = 30, 8


def sparse(rng):
    places = np.sort(rng.choice(SIZE, 12, replace=False)).astype(np.uint32)
    return Update(SIZE, places, rng.normal(size=12).astype(np.float32))


@pytest.mark.parametrize("malicious", [1, 2, 3])
def test_bounds_are_those_of_a_table_of_all_clients(malicious):
    """By brute force: each client's fading largest size of each entry, and the f + 1-th of them."""
    rng, bounds, table = np.random.default_rng(4), EntryBounds(SIZE, malicious), np.zeros((CLIENTS, SIZE))
    for _ in range(25):
        clients = np.sort(rng.choice(CLIENTS, 4, replace=False))
        updates = [sparse(rng) for _ in clients]
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
