"""Strategies in a user's own Flower app: what clients must meet, error feedback by hand, functions."""

import numpy as np
import pytest
from flwr.clientapp import ClientApp

from clients.state import ClientHistory, StateStore
from fedsel_app.config import ConfigError
from simulation.apps.client.client_app import client_app
from simulation.apps.server.strategy import strategy
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, by_name, data, losses, model, node, register, trained
from tests.support.rounds import read_rows

pytestmark = pytest.mark.usefixtures("task_identity")


def ran(app, name, folder, *, nodes=range(90, 90 + CLIENTS), **settings):
    """The final arrays of a run in a folder, in which the clients keep their states too."""
    grid = InProcessGrid(app, {number: node(client, folder) for client, number in enumerate(nodes)})
    options = {"clients": CLIENTS, "cohort": 2, "fraction_evaluate": 0.0, "out": folder / "run"} | settings
    result = strategy(name, **options).start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
    return result.arrays.to_numpy_ndarrays()


@pytest.mark.parametrize(
    ("name", "settings", "app", "message"),
    [
        ("oort", {}, ClientApp, r"client_app\(\) in .*: the strategy oort needs the rms loss .* lacks fedsel's line"),
        ("random", {"compressor": "top-k"}, ClientApp, r"client_app\(\) in place .*: compression \('compressor' top-k"),
        ("fed-cbs", {}, client_app, r"Write .*client_app\(label_counts=\.\.\.\).*: .* each client's label counts"),
        ("delta", {}, ClientApp, r"client_app\(gradient_deviation=\.\.\.\).*the gradient deviation of the selected"),
    ],
)
def test_a_need_that_the_app_cannot_meet_is_refused_by_name(tmp_path, name, settings, app, message):
    with pytest.raises(ConfigError, match=message):
        ran(register(app(), []), name, tmp_path, **settings)


def test_updates_are_compressed_with_error_feedback(tmp_path):
    """What is sent plus the residual (divided by its decay) is the client's change. Statistics are not compressed."""
    options = {"compressor": "top-k", "kept_fraction": 0.3, "kept_warmup_rounds": 0, "max_update_norm": 0}
    after = ran(register(client_app(), seen := []), "random", tmp_path, cohort=1, **options)
    [(client, _, records)] = seen
    for found, expected in zip(records["arrays"].to_numpy_ndarrays(), model(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-7)
        assert found.dtype == expected.dtype
    own = trained(model(), client)
    before, sent, whole = (
        np.concatenate([arrays[place].ravel() for place in (0, 4, 5)]) for arrays in (model(), after, own)
    )
    [row] = read_rows(tmp_path / "run")
    assert np.count_nonzero(sent - before) == np.ceil(10 * row["kept_fractions"][0]) < 10
    [folder] = (tmp_path / "fedsel-state").glob("*/client-*")
    state, _ = StateStore(folder.parent).recall(client, ClientHistory(1, 1))
    decay = float(state["decay"])
    np.testing.assert_allclose(sent - before + state["residual"] / decay, whole - before, atol=1e-6)
    np.testing.assert_allclose(after[2], own[2])


def test_the_users_losses_and_examples_are_asked_for(tmp_path):
    asked = []

    def own_losses(context, arrays):
        asked.append("losses")
        return losses(arrays.to_numpy_ndarrays(), *data(context.node_config["partition-id"]))

    app = register(client_app(losses=own_losses, examples=lambda context: 7), [])
    ran(app, "power-of-choice", tmp_path, compressor="top-k", kept_warmup_rounds=0)
    assert asked == ["losses"] * CLIENTS
    assert [row["examples"] for row in read_rows(tmp_path / "run", "clients.jsonl")] == [7] * CLIENTS


def test_unchanged_clients_are_numbered_by_ascending_node_id(tmp_path):
    """The node of client 0 has the highest id, so it counts as client 3."""
    ran(register(ClientApp(), []), "full", tmp_path, cohort=CLIENTS, nodes=[1000, 300, 20, 9])
    told = {row["client"]: row["examples"] for row in read_rows(tmp_path / "run", "clients.jsonl")}
    assert told == {3: 10, 2: 20, 1: 30, 0: 40}
