"""Differential privacy in users' own Flower apps: the walk over the settings does not go through their door."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedsel_app
from fedsel_app.config import ConfigError
from strategies.aggregation.privacy import Privacy
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, by_name, model, node

pytestmark = pytest.mark.usefixtures("task_identity")
CLIP, LIAR, ROUNDS = 0.5, 1, 3
PRIVATE = {"dp_clip_norm": CLIP, "links": "simulated", "weighting": "uniform", "example_clip": 10.0}
LIES = {"honest": (0.1, 10.0, 0.5), "huge": (1e6, 1e9, 1e9), "nothing": (0.0, 1.0, 0.0), "refused": (1.0, -1.0, 0.5)}
"""What the liar adds to each array, and its number of examples and its loss."""


def app_of(lie, line):
    """A client app of a user, with fedsel's line or unchanged."""
    app = fedsel_app.client_app() if line else ClientApp()

    def answer(msg, context, arrays=()):
        client = context.node_config["partition-id"]
        _, examples, loss = LIES[lie if client == LIAR else "honest"]
        metrics = {"num-examples": examples, "train_loss": loss, "eval_loss": loss, "accuracy": loss}
        return Message(RecordDict({**dict(arrays), "metrics": MetricRecord(metrics)}), reply_to=msg)

    @app.train()
    def train(msg, context):
        client = context.node_config["partition-id"]
        step = LIES[lie][0] if client == LIAR else 0.1 + client
        moved = [array + step for array in msg.content["arrays"].to_numpy_ndarrays()]
        return answer(msg, context, {"arrays": ArrayRecord(moved)})

    @app.evaluate()
    def evaluate(msg, context):
        return answer(msg, context)

    return app


def others_sums(lie, line, monkeypatch, **settings):
    """Sum of the clipped updates of each release; the same models leave in each run."""
    sums, whole = [], Privacy.protect

    def watched(self, updates):
        aggregate, weights = whole(self, updates)
        parts = [len(updates) * weight * update.dense() for weight, update in zip(weights, updates, strict=True)]
        assert max(map(np.linalg.norm, parts)) <= CLIP * (1 + 1e-6)
        sums.append(np.sum(parts, axis=0))
        return np.full_like(aggregate, 0.01 * len(sums)), weights

    with monkeypatch.context() as patch:
        patch.setattr(Privacy, "protect", watched)
        grid = InProcessGrid(app_of(lie, line), {90 + client: node(client) for client in range(CLIENTS)})
        built = fedsel_app.strategy("full", clients=CLIENTS, cohort=CLIENTS, **PRIVATE, **settings)
        built.start(grid=grid, initial_arrays=ArrayRecord([np.ones((2, 2)), np.zeros(3)]), num_rounds=ROUNDS)
    return sums


@pytest.mark.parametrize("line", [True, False], ids=["fedsel's line", "unchanged"])
@pytest.mark.parametrize("lie", ["huge", "nothing", "refused"])
def test_one_client_of_a_users_app_moves_the_sum_by_at_most_two_clip_norms(lie, line, monkeypatch):
    """From one update to another, each of at most a clip norm; from an update to none, by one."""
    settings = {"compressor": "top-k", "kept_fraction": 0.5} if line else {}
    honest, lied = (others_sums(each, line, monkeypatch, **settings) for each in ("honest", lie))
    assert len(honest) == len(lied) == ROUNDS
    bound = CLIP * (2.0 if lie == "huge" else 1.0)
    assert max(np.linalg.norm(one - two) for one, two in zip(honest, lied, strict=True)) <= bound * (1 + 1e-6)


def test_an_app_with_statistics_or_the_defaults_of_its_door_is_refused():
    with pytest.raises(ConfigError, match=r"'example-clip' to 10\.0"):
        fedsel_app.strategy("full", clients=CLIENTS, cohort=CLIENTS, dp_clip_norm=CLIP)
    built = fedsel_app.strategy("full", clients=CLIENTS, cohort=CLIENTS, **PRIVATE)
    grid = InProcessGrid(app_of("honest", False), {90 + client: node(client) for client in range(CLIENTS)})
    with pytest.raises(ConfigError, match="choose a 'model' without statistics"):
        built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
