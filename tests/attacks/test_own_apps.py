"""Users' own Flower apps: nothing is kept of a claim that is refused (N3), and no reply is read unbounded (N10)."""

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.client import ClientApp
from flwr.server import Server, SimpleClientManager
from flwr.server.compat.grid_client_proxy import GridClientProxy

from fedsel_app.wire.npy import read_array
from simulation.apps.client.legacy_messages import selecting
from simulation.apps.server import user_clients
from simulation.apps.server.strategy import strategy
from strategies.methods.random_weighted import RandomWeighted
from tests.support.own_app import CLIENTS, AppGrid, OwnClient, data, model, run_app
from tests.support.rounds import read_rows

pytestmark = pytest.mark.usefixtures("task_identity")
ROUNDS = 4


def proxy(node, client, told_examples):
    """A node that says that it is `client` and has so many examples."""

    def client_fn(context):
        return OwnClient(client, []).to_client()

    app = ClientApp(client_fn, mods=[selecting(label_counts=lambda context: np.array([told_examples, 0]))])
    config = {"partition-id": client, "num-partitions": CLIENTS, "state-dir": ""}
    context = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
    return GridClientProxy(node, AppGrid(app, {node: context}), 1)


def test_a_refused_claim_leaves_nothing_behind(tmp_path, monkeypatch):
    """N3: a node that claimed to be client 0, and to have one example, was refused, and client 0 counted for one."""
    honest = [proxy(90 + client, client, len(data(client)[1])) for client in range(CLIENTS)]
    seen, select = [], RandomWeighted.select

    def watched(self, roster, *rest):
        seen.append(roster.examples.tolist())
        return select(self, roster, *rest)

    monkeypatch.setattr(RandomWeighted, "select", watched)
    folder = tmp_path / "run"
    built = strategy("random-weighted", parameters=model(), out=folder, clients=CLIENTS, cohort=2, rounds=ROUNDS)
    manager, configure = SimpleClientManager(), built.configure_fit
    for node in honest:
        manager.register(node)

    def joined(server_round, parameters, client_manager):
        if server_round == 2:
            client_manager.register(proxy(99, 0, 1))
        return configure(server_round, parameters, client_manager)

    built.configure_fit = joined
    Server(client_manager=manager, strategy=built).fit(ROUNDS, timeout=None)
    found = read_rows(folder, "clients.jsonl")
    assert [row["client"] for row in found if "refused" in row.get("outcome", "")] == [0]
    assert [row["examples"] for row in found if "outcome" not in row] == [10, 20, 30, 40]
    assert seen == [[10, 20, 30, 40]] * ROUNDS


class Endless(OwnClient):
    """A client that returns 20,000 arrays."""

    def fit(self, parameters, config):
        return [np.zeros(1, np.float32)] * 20_000, 10, {}


def test_a_reply_of_endless_arrays_is_counted_before_it_is_read(monkeypatch):
    """N10: all of them were parsed first, which took seconds."""
    read = []

    def counted(tensor):
        read.append(tensor)
        return read_array(tensor)

    monkeypatch.setattr(user_clients, "read_array", counted)
    built = strategy("random", parameters=model(), clients=CLIENTS, cohort=2, rounds=1)
    with pytest.raises(RuntimeError, match=r"returned 20000 arrays; the model has 6"):
        run_app(built, 1, kind=Endless)
    assert read == []
