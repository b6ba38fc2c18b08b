"""Users' own Flower apps: nothing is kept of a claim that is refused (N3), and no reply is read unbounded (N10)."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from simulation.apps.client.client_app import client_app
from simulation.apps.server import user_clients
from simulation.apps.server.strategy import strategy
from strategies.methods.random_weighted import RandomWeighted
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, by_name, data, model, node, register
from tests.support.rounds import read_rows

pytestmark = pytest.mark.usefixtures("task_identity")
ROUNDS = 4


def test_a_refused_claim_leaves_nothing_behind(tmp_path, monkeypatch):
    """N3: a node that claimed to be client 0, and to have one example, was refused, and client 0 counted for one."""
    claims = {90 + client: len(data(client)[1]) for client in range(CLIENTS)} | {99: 1}
    seen, select = [], RandomWeighted.select

    def watched(self, roster, *rest):
        seen.append(roster.examples.tolist())
        return select(self, roster, *rest)

    monkeypatch.setattr(RandomWeighted, "select", watched)
    app = register(client_app(label_counts=lambda context: [claims[context.node_id], 0]), [])
    contexts = {90 + client: node(client, tmp_path) for client in range(CLIENTS)}

    def joining(number, result):
        contexts[99] = Context(1, 99, node(0, tmp_path).node_config, RecordDict(), {})
        return False

    built = strategy("random-weighted", out=tmp_path / "run", clients=CLIENTS, cohort=2, fraction_evaluate=0.0)
    grid = InProcessGrid(app, contexts)
    built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=ROUNDS, should_stop=joining)
    found = read_rows(tmp_path / "run", "clients.jsonl")
    assert [row["client"] for row in found if "refused" in row.get("outcome", "")] == [0]
    assert [row["examples"] for row in found if "outcome" not in row] == [10, 20, 30, 40]
    assert seen == [[10, 20, 30, 40]] * ROUNDS


def test_a_reply_of_endless_arrays_is_counted_before_it_is_read(monkeypatch):
    """N10: all of them were parsed first, which took seconds."""
    read, app = [], ClientApp()

    @app.train()
    def train(message, context):
        arrays = ArrayRecord([np.zeros(1, np.float32)] * 2000)
        return Message(RecordDict({"a": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)

    monkeypatch.setattr(user_clients, "read_named", lambda name, tensor: read.append(tensor))
    grid = InProcessGrid(app, {90 + client: node(client) for client in range(CLIENTS)})
    built = strategy("random", clients=CLIENTS, cohort=2)
    with pytest.raises(RuntimeError, match=r"6 of the model's 6 arrays are missing .*, and 2000 that came"):
        built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
    assert read == []
