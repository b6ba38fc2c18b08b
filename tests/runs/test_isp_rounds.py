"""ISP on the digits, in rounds of real clients."""

from dataclasses import replace

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.corruption import corrupted
from fedsel_app.data.dataset import load
from tests.support.in_process import run_in_process

CLIENTS = 6
BASE = {"clients": CLIENTS, "cohort": 3, "local_steps": 4, "holdout_fraction": 0.2, "eval_threads": 1}


def run(folder, rounds=2, **settings):
    settings = settings if "preset" in settings else BASE | settings
    strategy, rows = run_in_process(folder / "run", rounds=rounds, state_dir=str(folder), **settings)
    state = {path.parent.name + path.name: path.read_bytes() for path in folder.rglob("client-*/round-*.npz")}
    return strategy, rows, state


@pytest.fixture
def surrogate(tmp_path):
    data = load(DataConfig(), 42)
    np.savez(tmp_path / "surrogate.npz", x=data.x_train[:100, 0], y=data.y_train[:100])
    return str(tmp_path / "surrogate.npz")


@pytest.mark.parametrize(
    ("method", "policy"),
    [("hetero-select", "isp"), ("random", "isp-ri")],
)
def test_four_rounds_around_a_method(tmp_path, surrogate, method, policy):
    settings = {"participation": policy, "isp_interval": 2, "isp_draws": 3, "isp_momentum": 1.0}
    settings |= {"isp_loss": "surrogate", "surrogate_path": surrogate}
    _, rows, _ = run(tmp_path, rounds=4, strategy=method, **settings)
    assert ["search" in row for row in rows] == [True, False, True, False]
    for row in rows:
        assert row["cohort"] == len(row["selected"])
        assert row["client_updates"] == len(row["aggregated"]) + (CLIENTS if "search" in row else 0)
    assert rows[0]["cohort"] == rows[1]["cohort"] == (rows[0]["search"]["found"] or CLIENTS)
    assert len(rows[0]["search"]["tried"]) == (rows[0]["search"]["found"] if policy == "isp" else CLIENTS)
    assert rows[3]["accuracy"] > 0.3


def test_the_clients_test_the_candidates_where_there_is_no_surrogate(tmp_path):
    _, rows, _ = run(tmp_path, strategy="random", participation="isp", isp_draws=2, client_eval=True)
    search = rows[0]["search"]
    assert search["found"] is not None
    assert search["losses"][-1] < search["global_loss"] == pytest.approx(2.3, abs=0.3)
    model = 4 * 650
    assert rows[0]["probe_bytes"] % (model + 8) == 0
    assert rows[0]["probe_bytes"] >= (CLIENTS + 1) * (model + 8)
    assert rows[1]["probe_bytes"] == 0


def test_a_corrupted_surrogate_changes_what_the_search_sees_alone(tmp_path):
    """The clients train as before; a uniform grey image stays uniform, however it is cropped, flipped or coloured."""
    images = np.random.default_rng(0).integers(0, 256, (200, 3, 8, 8), np.uint8)
    labels = np.arange(200) % 2
    np.savez(tmp_path / "rgb.npz", x_train=images, y_train=labels, x_test=images[:40], y_test=labels[:40])
    policy = {"participation": "isp", "isp_interval": 1, "isp_draws": 2, "strategy": "random", "rounds": 1}
    policy |= {"isp_loss": "surrogate", "surrogate_examples": 20, "data": "npz", "data_path": str(tmp_path / "rgb.npz")}
    kinds = {"plain": "none", "first": "corrupted", "second": "corrupted"}
    found = {name: run(tmp_path / name, surrogate_augment=kind, **policy)[1] for name, kind in kinds.items()}
    plain, first, second = (rows[0] for rows in found.values())
    assert first["search"] == second["search"]
    assert first["search"]["global_loss"] != plain["search"]["global_loss"]
    losses = [dict(zip(row["aggregated"], row["fit_losses"], strict=True)) for row in (plain, first)]
    shared = losses[0].keys() & losses[1].keys()
    assert shared
    assert {client: losses[0][client] for client in shared} == {client: losses[1][client] for client in shared}
    grey = load(DataConfig(data="npz", data_path=str(tmp_path / "rgb.npz")), 0)
    grey = replace(grey, x_test=np.full((5, 3, 8, 8), 90, np.uint8))
    made = corrupted(grey, 0)
    assert (made.x_test == made.x_test[:, :1, :1, :1]).all()
    assert len(np.unique(made.x_test)) > 1
    assert made.mean.tolist() == pytest.approx([0.485, 0.456, 0.406])
    with pytest.raises(ConfigError, match="needs RGB images"):
        corrupted(load(DataConfig(), 0), 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "hetero-select"},
        {"strategy": "random", "solver": "scaffold", "compressor": "none"},
    ],
    ids=["error feedback", "scaffold"],
)
def test_searches_leave_no_trace_in_clients_server_or_method(tmp_path, surrogate, settings, monkeypatch):
    """A search whose finding counts for nothing leaves the run as it is without one, bit for bit."""
    monkeypatch.setattr("strategies.participation.mixed", lambda found, before, momentum, down: before)
    policy = {"participation": "isp", "isp_interval": 1, "isp_draws": 2}
    policy |= {"isp_loss": "surrogate", "surrogate_path": surrogate}
    searched, rows, state = run(tmp_path / "a", **settings, **policy)
    plain, plain_rows, plain_state = run(tmp_path / "b", **settings)
    assert all("search" in row for row in rows)
    assert searched.run.model.parameters.tobytes() == plain.run.model.parameters.tobytes()
    assert state == plain_state
    assert bool(state)
    for name in ("selected", "weights", "scores", "fit_losses", "accuracy", "loss"):
        assert [row[name] for row in rows] == [row[name] for row in plain_rows]
    assert {name: array.tobytes() for name, array in searched.state().items()} == {
        name: array.tobytes() for name, array in plain.state().items()
    }


@pytest.mark.parametrize("form", ["text", "code"])
def test_the_pool_around_terraform_is_that_of_a_rounds_first_iteration(tmp_path, surrogate, form):
    """Only first iterations search and draw; the later ones train hard sets of the first cohort."""
    settings = {"participation": "isp-ri", "isp_interval": 2, "isp_draws": 2, "isp_momentum": 1.0}
    settings |= {"isp_form": form}
    settings |= {"isp_loss": "surrogate", "surrogate_path": surrogate}
    settings |= {"terraform.min-clients": 1, "terraform.count": "rounds", "terraform.iterations": 3}
    _, rows, _ = run(tmp_path, rounds=4, strategy="terraform", **settings)
    pools, found = {}, BASE["cohort"]
    for row in rows:
        number, iteration = row["method_round"], row["iteration"]
        assert ("search" in row) == (iteration == 1 and number in (1, 3))
        if iteration == 1:
            if "search" in row:
                found = row["search"]["found"] or (CLIENTS if form == "text" else found)
            pools[number] = set(row["selected"])
            trained = CLIENTS if form == "code" and "search" in row else found
            assert len(pools[number]) == trained
        assert set(row["selected"]) <= pools[number]
    assert len(rows) > len(pools) == 4
