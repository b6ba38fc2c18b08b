"""fedsel's strategy in place of Flower's own FedAvg, with unchanged clients: the same messages, model and metrics."""

import logging
from functools import partial

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod, message_size_mod
from flwr.serverapp.strategy import FedAvg, FedAvgM, FedMedian, FedProx, FedTrimmedAvg, Krum

import fedsel_app
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, node

pytestmark = pytest.mark.usefixtures("task_identity")
MODEL = {"w": np.ones((3, 4), np.float32), "a": np.zeros(2, np.float32), "10": np.zeros(1, np.float32)}
EXAMPLES = (10, 20, 30, 40)


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def form(content):
    """The records of a message, their order included."""
    arrays = [(name, array.dtype, array.shape, array.stype) for name, array in content["arrays"].items()]
    return list(content), arrays, list(content["config"].items())


def app_of(
    examples=EXAMPLES,
    *,
    mods=None,
    turned=True,
    line=False,
    seen=None,
    metrics=lambda client: {},
):
    """Clients whose training adds (client + 1) / 8 to each array, and returns the arrays in reverse order.

    It adds less if the config, as in FedProx, or its own server's last query has the divisor's excess.
    """
    app = fedsel_app.client_app(mods=mods) if line else ClientApp(mods=mods)
    seen = [] if seen is None else seen

    @app.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        seen.append(("train", client, form(message.content)))
        [arrays] = message.content.array_records.values()
        excess = context.state.get("told", message.content["config"]).get("proximal-mu", 0.0)
        step = np.float32((client + 1) / 8 / (1.0 + excess))
        after = {name: array.numpy() + step for name, array in arrays.items()}
        after = {name: after[name] for name in (reversed(after) if turned else after)}
        told = MetricRecord({"num-examples": examples[client], "loss": 1.0 / (client + 1), **metrics(client)})
        return Message(RecordDict({"my model": record(after), "my metrics": told}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        client = context.node_config["partition-id"]
        seen.append(("evaluate", client, form(message.content)))
        told = MetricRecord({"num-examples": examples[-1 - client], "f1": 0.25 * client, "parts": [float(client), 1.0]})
        return Message(RecordDict({"tests": told}), reply_to=message)

    @app.query()
    def query(message, context):
        context.state["told"] = message.content["of its own server"]
        return Message(RecordDict(), reply_to=message)

    return app


def ran(strategy, app, *, rounds=2, **start):
    """Result of a run with a strategy, or with what a function makes of the grid."""
    grid = InProcessGrid(app, {90 + client: node(client) for client in range(CLIENTS)})
    strategy = strategy(grid) if callable(strategy) else strategy
    return strategy.start(grid=grid, initial_arrays=record(MODEL), num_rounds=rounds, **start)


def fedsel(name="random", **options):
    return fedsel_app.strategy(name, clients=CLIENTS, cohort=CLIENTS, **options)


def same(found, expected):
    """The same results, to the rounding of float32."""
    assert list(found.arrays) == list(MODEL)
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name].numpy(), array.numpy(), rtol=1e-6, err_msg=name)
    for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        mine, theirs = getattr(found, kind), getattr(expected, kind)
        assert mine.keys() == theirs.keys()
        for number, metrics in theirs.items():
            assert mine[number].keys() == metrics.keys()
            for name, value in metrics.items():
                np.testing.assert_allclose(mine[number][name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "examples",
    [(10, 10, 10, 5000), (0.25, 0.5, 3.75, 1.5), (1, 1, 1, 10**9), (0.5, 0.0, 1.5, 2.0)],
    ids=str,
)
@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_the_model_and_the_metrics_are_fedavgs_for_any_numbers_of_examples(tmp_path, monkeypatch, examples, line):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with logged() as log:
        found = ran(fedsel("fedavg"), app_of(examples, line=line))
    same(found, ran(FedAvg(), app_of(examples)))
    assert bool(log()) == (0.0 in examples)


class Rising(FedAvg):
    """A user's own strategy class: the proximal term grows with the rounds."""

    def configure_train(self, server_round, arrays, config, grid):
        return super().configure_train(server_round, arrays, rising(server_round), grid)


class Telling(FedAvg):
    """A user's own strategy class: a query tells each client before each round what to train with."""

    def configure_train(self, server_round, arrays, config, grid):
        return super().configure_train(server_round, arrays, told(grid, server_round), grid)


def rising(number):
    return ConfigRecord({"proximal-mu": 0.5 * number})


def told(grid, number):
    content = RecordDict({"of its own server": rising(2 * number)})
    grid.send_and_receive([Message(content, dst_node_id=each, message_type="query") for each in grid.get_node_ids()])
    return ConfigRecord()


@pytest.mark.parametrize(
    ("flowers", "options"),
    [
        (FedProx(proximal_mu=0.5), {}),
        (FedAvgM(server_momentum=0.9), {"server_optimizer": "momentum", "server_momentum": 0.9}),
        (FedMedian(), {"aggregation": "median", "update_clip": 0}),
        (FedTrimmedAvg(beta=0.25), {"aggregation": "trimmed-mean", "trim_share": 0.25, "update_clip": 0}),
        (Krum(), {"aggregation": "krum", "krum_malicious": 0, "update_clip": 0}),
        (Rising(), {"train_config_fn": rising}),
        (Telling(), lambda grid: {"train_config_fn": partial(told, grid)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_flowers_other_strategies_and_own_classes_are_fedsels_arguments_of_the_page(flowers, options):
    config = ConfigRecord({"proximal-mu": 0.5})
    models = [
        ran(strategy, app_of(turned=False), train_config=config).arrays.to_numpy_ndarrays()
        for strategy in (lambda grid: fedsel(**(options(grid) if callable(options) else options)), flowers)
    ]
    for found, expected in zip(*models, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_step_of_an_adaptive_server_optimizer_is_flowers_default():
    """Of the first update d, M is 0.1 d and V is 0.99 tau^2 + 0.01 d^2, with tau = 0.001."""
    update = (10 * 1 + 20 * 2 + 30 * 3 + 40 * 4) / 100 / 8
    step = 0.1 * 0.1 * update / (np.sqrt(0.99e-6 + 0.01 * update**2) + 0.001)
    found = ran(fedsel(server_optimizer="fedadam"), app_of(), rounds=1).arrays
    np.testing.assert_allclose(found["a"].numpy(), step, rtol=1e-5)


def test_an_unchanged_client_gets_what_fedavg_sends():
    configs = {"train_config": ConfigRecord({"lr": 0.5}), "evaluate_config": ConfigRecord({"batch": 8})}
    seen, expected = [], []
    ran(fedsel(), app_of(seen=seen, turned=False), **configs)
    ran(FedAvg(), app_of(seen=expected, turned=False), **configs)
    assert len(seen) == 4 * CLIENTS
    assert sorted(seen, key=str) == sorted(expected, key=str)


def test_a_simulation_logs_the_errors_of_an_unchanged_app_but_not_that_it_does_not_know_its_enrolment():
    app = ClientApp()

    @app.train()
    def train(message, context):
        raise ValueError("out of data")

    def logging_app(message, context):
        """As Flower's simulation, which logs the errors of its clients."""
        try:
            return app(message, context)
        except Exception:
            logging.getLogger("flwr").exception("An exception was raised when processing a message")
            raise

    with logged("flwr") as log, pytest.raises(RuntimeError, match="out of data"):
        ran(fedsel(fraction_evaluate=0.0), logging_app, rounds=1)
    assert log().count("An exception was raised") == log().count("ValueError: out of data") == CLIENTS
    assert "No query function" not in log()


@pytest.mark.parametrize("mod", [fixedclipping_mod, adaptiveclipping_mod, message_size_mod])
def test_flowers_own_mods_work_in_an_unchanged_client(mod):
    found, expected = (
        ran(
            strategy,
            app_of(mods=[mod], turned=False),
            train_config=ConfigRecord({"clipping_norm": 0.5}),
        )
        for strategy in (fedsel(fraction_evaluate=0.0), FedAvg(fraction_evaluate=0.0))
    )
    same(found, expected)


def test_a_mod_whose_error_answers_its_own_reply_is_a_failed_evaluation_as_with_fedavg():
    mods = [LocalDpMod(clipping_norm=0.5, sensitivity=0.0, epsilon=1.0, delta=0.1)]
    with logged() as log:
        found = ran(fedsel(reply_timeout_s=5.0), app_of(mods=mods, turned=False))
    assert "client 3 failed to evaluate: LocalDpMod expects exactly one ArrayRecord" in log()
    same(found, ran(FedAvg(), app_of(mods=mods, turned=False)))


@pytest.mark.parametrize("line", [False, True], ids=["unchanged", "line"])
def test_a_reply_without_the_number_of_examples_is_refused_with_the_names_that_came(tmp_path, monkeypatch, line):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"examples as n, above 0 .* It reports only loss, num-examples\."):
        ran(fedsel(weighted_by_key="n"), app_of(line=line), rounds=1)


def test_lists_and_own_functions_aggregate_what_flower_aggregates():
    def largest(records, key):
        found = [next(iter(content.metric_records.values())) for content in records]
        return MetricRecord({"largest": max(metrics[key] for metrics in found), "clients": len(found)})

    options = {"train_metrics_aggr_fn": largest, "evaluate_metrics_aggr_fn": largest, "weighted_by_key": "n"}
    clients = app_of(metrics=lambda client: {"n": 3 * EXAMPLES[client]})
    found = ran(fedsel(**options, fraction_evaluate=0.0), clients)
    same(found, ran(FedAvg(**options, fraction_evaluate=0.0), clients))
    assert dict(found.train_metrics_clientapp[2]) == {"largest": 120, "clients": 4}
    options.pop("weighted_by_key")
    found = ran(fedsel(**options), app_of())
    same(found, ran(FedAvg(**options), app_of()))
    assert dict(found.evaluate_metrics_clientapp[1]) == {"largest": 40, "clients": 4}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 4),
        ({"fraction_evaluate": 0.8}, 3),
        ({"fraction_evaluate": 0.1}, 2),
        ({"fraction_evaluate": 0.1, "min_evaluate_nodes": 1}, 1),
        ({"fraction_evaluate": 0.0}, 0),
    ],
)
def test_as_many_clients_evaluate_as_with_fedavg(options, count):
    for strategy in (fedsel(**options), FedAvg(**options)):
        seen = []
        ran(strategy, app_of(seen=seen), rounds=1)
        assert len({client for kind, client, _ in seen if kind == "evaluate"}) == count


def test_clients_without_an_evaluation_are_asked_once():
    app, seen = ClientApp(), []

    @app.train()
    def train(message, context):
        return Message(
            RecordDict({"arrays": message.content["arrays"], "m": MetricRecord({"num-examples": 1})}), reply_to=message
        )

    def counting(message, context):
        seen.append(message.metadata.message_type)
        return app(message, context)

    with logged() as log:
        found = ran(fedsel(), counting, rounds=3)
    assert seen.count("evaluate") == CLIENTS
    assert found.evaluate_metrics_clientapp == {}
    assert log() == "The clients have no @app.evaluate(), so that they evaluate no model of this run.\n"
