"""Methods that need losses or metrics, in users' apps: under any name, and what is refused, with the reason."""

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp

import fedsel_app
from strategies import Needs, Selection, SelectionStrategy
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, by_name, model, node, register
from tests.support.rounds import read_rows

pytestmark = pytest.mark.usefixtures("task_identity")
QUICK = {"fedcor": {"warmup": 1, "first_steps": 2, "steps": 1}}
APPS = [("fedcor", ClientApp), ("hetero-select", ClientApp), ("oort", fedsel_app.client_app)]
"""Methods that need losses: before they select, of the selected, and of the selected with fedsel's line."""


def started(name, app, state_dir="", *, start=None, **options):
    """Result of three rounds of the method `name` with four clients of `app`."""
    options = {"links": "simulated", "fraction_evaluate": 0.0} | QUICK.get(name, {}) | options
    built = fedsel_app.strategy(name, clients=CLIENTS, cohort=2, **options)
    grid = InProcessGrid(app, {90 + client: node(client, state_dir) for client in range(CLIENTS)})
    return built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=3, **(start or {}))


@pytest.mark.parametrize(("name", "app"), APPS)
def test_a_loss_of_another_name_counts_like_one_of_the_usual_names(tmp_path, name, app):
    other = register(app(), [], loss=lambda client, loss: {"loss": 0.0, "test_logloss": loss})
    found = started(name, other, tmp_path / "a", loss_key="test_logloss").arrays
    expected = started(name, register(app(), []), tmp_path / "b").arrays
    for one, two in zip(found.to_numpy_ndarrays(), expected.to_numpy_ndarrays(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("name", "app"), APPS[1:])
@pytest.mark.parametrize(
    ("loss", "came"),
    [
        (lambda client, loss: {"test_logloss": loss}, "it returned eval_acc, num-examples, test_logloss"),
        (lambda client, loss: {"eval_loss": float("nan")}, "it returned eval_loss = nan"),
    ],
)
def test_a_run_of_clients_without_a_loss_ends_with_what_they_returned(name, app, loss, came):
    seen = []
    with pytest.raises(RuntimeError, match=rf"its evaluate must return its loss .*loss_key.*{came}"):
        started(name, register(app(), seen, loss=loss))
    assert {kind for _, kind, _ in seen} == {"evaluate"}


@pytest.mark.parametrize("name", ["oort", "active-fl"])
def test_the_loss_before_a_training_is_evaluated_with_the_config_of_an_evaluation(tmp_path, name):
    seen = []
    app = register(fedsel_app.client_app(), seen)
    start = {"train_config": ConfigRecord({"batches": 1}), "evaluate_config": ConfigRecord({"batches": 3})}
    started(name, app, tmp_path / "a", start=start)
    configs = [(kind, records["config"]["batches"]) for _, kind, records in seen]
    assert set(configs) == {("train", 1), ("evaluate", 3)}
    assert all(set(records) == {"arrays", "config"} for _, _, records in seen)


@pytest.mark.parametrize("app", [ClientApp, fedsel_app.client_app])
def test_an_app_that_cannot_evaluate_is_refused_by_that_reason(app):
    trains = app()
    trains.train()(lambda message, context: message)
    with pytest.raises(RuntimeError, match="No evaluate function registered"):
        started("power-of-choice", trains)


def test_one_client_with_a_loss_is_enough_and_the_others_are_left_out_by_name():
    app = register(ClientApp(), [], loss=lambda client, loss: {"loss" if client == 3 else "test_logloss": loss})
    with logged() as log:
        assert started("power-of-choice", app, candidates=CLIENTS).train_metrics_clientapp.keys() == {1, 2, 3}
    assert "Round 1: client 0 failed its loss probe: its evaluate must return its loss" in log()


class LowestAfterTraining(SelectionStrategy):
    """The clients whose metric after training was lowest; those that have not trained come first."""

    name, paper, explores, metric = "lowest-after", "this test", False, "val_acc"

    @classmethod
    def needs(cls, config):
        return Needs(fit_metrics=(cls.metric,))

    def select(self, roster, round_info, count, rng):
        value = np.nan_to_num(roster.fit_metric(self.metric)[roster.ids], nan=-1.0)
        return Selection(np.sort(roster.ids[np.argsort(value, kind="stable")[:count]]))


@pytest.mark.parametrize("app", [ClientApp, fedsel_app.client_app])
def test_a_method_reads_the_metrics_that_users_clients_report_after_training(tmp_path, app):
    """Client k reports 1 - k / 10: 0 and 1 train, then 2 and 3, then the lowest two."""
    apps = register(app(), [], metrics=lambda client: {"val_acc": 1.0 - client / 10})
    method = f"{__name__}:LowestAfterTraining"
    started(method, apps, tmp_path / "states", out=str(tmp_path / "run"))
    rows = read_rows(tmp_path / "run")
    assert [row["selected"] for row in rows] == [[0, 1], [2, 3], [2, 3]]
    assert [row["fit_metrics"] for row in rows] == [{"val_acc": [1.0, 0.9]}, *[{"val_acc": [0.8, 0.7]}] * 2]
    assert [row["probe_bytes"] for row in rows] == [2 * 8] * 3
    with pytest.raises(RuntimeError, match=r"must report the metric val_acc, which .* reads. It reports only num-ex"):
        started(method, register(app(), []), tmp_path / "states")
