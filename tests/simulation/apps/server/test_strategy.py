"""Strategies in a user's own Flower app: unchanged clients, clients with the mod, and what is refused."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.clientapp.mod import fixedclipping_mod, message_size_mod

from clients.state import ClientHistory, StateStore
from fedsel_app.config import ConfigError
from simulation.apps.client.client_app import client_app
from simulation.apps.client.legacy_messages import selecting
from simulation.apps.server.strategy import strategy
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import (
    CLIENTS,
    BrokenClient,
    by_name,
    data,
    losses,
    model,
    node,
    register,
    run_app,
    trained,
)
from tests.support.rounds import read_rows

pytestmark = pytest.mark.usefixtures("task_identity")
SIZES = {"clients": CLIENTS, "cohort": 2}


def in_rounds(number, app, name, state_dir, **settings):
    """Run an app of the Message API."""
    grid = InProcessGrid(app, {90 + client: node(client, state_dir) for client in range(CLIENTS)})
    strategy(name, **SIZES | settings).start(grid=grid, initial_arrays=by_name(model()), num_rounds=number)


def build(name, folder=None, **settings):
    return strategy(name, parameters=model(), out=folder, **{"rounds": 3} | SIZES | settings)


@pytest.mark.parametrize(
    ("name", "settings", "mods", "message"),
    [
        (
            "oort",
            {},
            (),
            r"Write .*\[selecting\].*: the strategy oort needs the rms loss .* lacks fedsel's line",
        ),
        ("random", {"compressor": "top-k"}, (), r"mods=\[selecting\].*: compression \('compressor' top-k"),
        ("fed-cbs", {}, (selecting,), r"Write .*client_app\(label_counts=\.\.\.\).*: .* each client's label counts"),
        ("delta", {}, (), r"client_app\(gradient_deviation=\.\.\.\).*the gradient deviation of the selected"),
    ],
)
def test_a_need_that_the_clients_cannot_meet_is_refused_by_name(name, settings, mods, message):
    with pytest.raises(ConfigError, match=message):
        run_app(build(name, **settings), 3, mods=mods)


def test_a_stray_node_that_cannot_take_part_ends_no_run(tmp_path):
    run_app(build("oort", tmp_path / "run"), 3, mods=[selecting], nodes=[1, 2, 3, 4, 5], strays=[5])
    assert [len(row["aggregated"]) for row in read_rows(tmp_path / "run")] == [2, 2, 2]


def test_the_mod_hands_the_users_arrays_and_config_on_and_compresses_with_error_feedback(tmp_path):
    """What is sent plus the residual (divided by its decay) is the client's change. Statistics are not compressed."""
    seen = []
    options = {"compressor": "top-k", "kept_fraction": 0.3, "kept_warmup_rounds": 0, "fit_config": {"mine": 7}}
    options |= {"max_update_norm": 0}
    built = build("random", tmp_path / "run", cohort=1, rounds=1, **options)
    after = run_app(built, 1, mods=[selecting], state_dir=tmp_path, seen=seen)
    [(client, config, parameters)] = seen
    assert config == {"mine": 7}
    for found, expected in zip(parameters, model(), strict=True):
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


def halving(message, context, call_next):
    """A mod that changes the arrays of a reply."""
    reply = call_next(message, context)
    for name, record in reply.content.array_records.items():
        reply.content[name] = ArrayRecord([array // 2 for array in record.to_numpy_ndarrays()])
    return reply


@pytest.mark.parametrize(
    ("mods", "reason"),
    [
        ([selecting, message_size_mod], ""),
        ([message_size_mod, selecting], "before all other mods"),
        ([halving, selecting], "The payload is not an update"),
        ([fixedclipping_mod, selecting], "before all other mods"),
    ],
)
def test_what_a_mod_before_fedsels_changes_is_refused(tmp_path, mods, reason):
    built = build("random", rounds=1, compressor="top-k")
    with pytest.raises((ConfigError, RuntimeError), match=reason) if reason else nullcontext():
        run_app(built, 1, mods=mods, state_dir=tmp_path)


def test_the_users_losses_and_examples_are_asked_for(tmp_path):
    asked = []

    def own_losses(context, arrays):
        asked.append("losses")
        return losses(arrays.to_numpy_ndarrays(), *data(context.node_config["partition-id"]))

    options = {"compressor": "top-k", "kept_warmup_rounds": 0, "out": tmp_path / "run"}
    app = register(client_app(losses=own_losses, examples=lambda context: 7), [])
    in_rounds(1, app, "power-of-choice", tmp_path, fraction_evaluate=0.0, **options)
    assert asked == ["losses"] * CLIENTS
    assert [row["examples"] for row in read_rows(tmp_path / "run", "clients.jsonl")] == [7] * CLIENTS


def test_unchanged_clients_are_numbered_by_ascending_node_id(tmp_path):
    """The node of client 0 has the highest id, so it counts as client 3."""
    run_app(build("full", tmp_path, cohort=CLIENTS, rounds=1), 1, nodes=[1000, 300, 20, 9])
    told = {row["client"]: row["examples"] for row in read_rows(tmp_path, "clients.jsonl")}
    assert told == {3: 10, 2: 20, 1: 30, 0: 40}


def test_the_users_central_test_is_recorded(tmp_path):
    asked = []

    def evaluate(number, arrays, config):
        asked.append((number, len(arrays), config))
        return 0.25, {"accuracy": 0.75, "f1": 0.5}

    run_app(build("random", tmp_path / "run", evaluate_fn=evaluate, eval_every=2), 3)
    assert asked == [(number, 6, {}) for number in (0, 2, 3)]
    assert [row.get("accuracy") for row in read_rows(tmp_path / "run")] == [None, 0.75, 0.75]
    assert read_rows(tmp_path / "run")[1]["metrics"] == {"f1": 0.5}
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"] == "flower-app"


@pytest.mark.parametrize("mods", [(), (selecting,)], ids=["unchanged", "line"])
def test_a_model_without_one_of_its_arrays_is_refused(tmp_path, mods):
    with pytest.raises(RuntimeError, match=r"must return all arrays that it received, in their order"):
        run_app(build("random"), 3, kind=BrokenClient, mods=mods, state_dir=tmp_path)
