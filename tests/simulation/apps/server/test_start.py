"""The call of `start` as in Flower: its arguments in every release, the end of a run, and what is refused."""

import json
import re
from inspect import signature

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.server import Server, SimpleClientManager
from flwr.serverapp import strategy as strategies

import fedsel_app
from fedsel_app.config import ConfigError
from fedsel_app.imports import LEGACY
from simulation.apps.server.app_strategy import AppStrategy
from tests.support.documentation import PAGES
from tests.support.in_process_grid import InProcessGrid
from tests.support.own_app import CLIENTS, by_name, model, node, register
from tests.support.rounds import read_rows

pytestmark = pytest.mark.usefixtures("task_identity")
SIZES = {"clients": CLIENTS, "cohort": 2, "links": "simulated"}
ALONE = "Leave Flower's own strategies, wrappers and secure aggregation out"


def grid_of(seen):
    app = register(ClientApp(), seen)
    return InProcessGrid(app, {90 + client: node(client) for client in range(CLIENTS)})


def started(folder=None, *, seen=None, options=None, **arguments):
    built = fedsel_app.strategy("random", out=folder, **SIZES, **(options or {}))
    calls = {"grid": grid_of([] if seen is None else seen), "initial_arrays": by_name(model()), "num_rounds": 4}
    return built.start(**calls | arguments)


def test_start_takes_every_argument_of_flowers_installed_release():
    own = list(signature(AppStrategy.start).parameters)
    flowers = list(signature(strategies.Strategy.start).parameters)
    assert flowers == own[: len(flowers)]
    assert own == [
        *("self", "grid", "initial_arrays", "num_rounds", "timeout", "train_config", "evaluate_config"),
        *("evaluate_fn", "should_stop"),
    ]


@pytest.mark.parametrize("round_of_the_end", [1, 4])
def test_should_stop_ends_the_run_after_the_round_with_a_summary(tmp_path, round_of_the_end):
    asked = []

    def should_stop(number, result):
        asked.append(number)
        assert list(result.train_metrics_clientapp) == asked
        assert list(result.arrays) == list(by_name(model()))
        return result.evaluate_metrics_serverapp[number]["loss"] <= 1.0 / round_of_the_end

    def evaluate(number, arrays):
        return MetricRecord({"loss": 1.0 / max(number, 1) if number else 9.0})

    result = started(tmp_path / "run", should_stop=should_stop, evaluate_fn=evaluate)
    whole = started(num_rounds=round_of_the_end)
    assert asked == list(result.train_metrics_clientapp) == list(range(1, round_of_the_end + 1))
    for found, expected in zip(result.arrays.values(), whole.arrays.values(), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == round_of_the_end
    assert len(read_rows(tmp_path / "run")) == round_of_the_end


def test_the_functions_of_the_round_give_the_clients_their_config():
    seen, rng = [], np.random.default_rng(1)
    options = {"train_config_fn": lambda number: {"lr": 0.1 / number, "draw": rng.integers(1 << 30).item()}}
    options |= {"evaluate_config_fn": lambda number: ConfigRecord({"batches": number}), "client_eval": True}
    started(seen=seen, options=options, train_config=ConfigRecord({"lr": 9.0, "mine": 7}))
    trained = [records["config"] for _, kind, records in seen if kind == "train"]
    assert [(config["lr"], config["mine"]) for config in trained] == [(0.1 / n, 7) for n in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert all(first["draw"] == second["draw"] for first, second in zip(trained[::2], trained[1::2], strict=True))
    assert len({config["draw"] for config in trained}) == 4
    assert {records["config"]["batches"] for _, kind, records in seen if kind == "evaluate"} == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial_arrays": ArrayRecord([np.zeros(9, np.uint8)])}, "cannot combine bytes, such as the trees of XGBo"),
        ({"options": {"evaluate_fn": max, "parameters": model()}}, f"^{re.escape(LEGACY)}$"),
        ({"options": {"evaluate_fn": max}}, "Give 'evaluate_fn' to start"),
        ({"options": {"fit_config": {"lr": 1.0}}}, "'train_config_fn'"),
        ({"evaluate_fn": lambda number, arrays: {"accuracy": 93.5}}, "accuracy as a number from 0 to 1. It is 93.5"),
    ],
)
def test_other_arguments_are_refused_when_the_run_starts(arguments, message):
    with pytest.raises(ConfigError, match=message):
        started(**arguments)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("random", {"initial_parameters": model()}, "as start's 'initial_arrays'"),
        ("random", {"initial_arrays": model()}, "as start's 'initial_arrays'"),
        ("random", {"on_fit_config_fn": dict}, "'train_config_fn'"),
        ("random", {"on_evaluate_config_fn": dict}, "'evaluate_config_fn'"),
        ("random", {"proximal_mu": 0.5}, r"start\(..., train_config=ConfigRecord\({'proximal-mu': 0.1}\)\)"),
        ("random", {"solver": "fedprox"}, "Set 'solver' to sgd: .* can send proximal-mu"),
        ("random", {"eta_l": 0.1}, "Give a config to start, as 'train_config'"),
        ("random", {"waiting": "async"}, "Set 'waiting' to synchronous: the server"),
        ("random", {"secure_sums": "masks"}, "Set 'secure-sums' to none: masks need fedsel's own clients"),
        ("random", {"participation": "ips"}, "to fixed or .*adafl-econom.*: the others let"),
        ("random", {"resume": True}, "Set 'resume' to 'auto', or leave it out. Got True"),
        ("random", {"fraction_evaluate": float("nan")}, "Set 'fraction_evaluate' to a number from 0 to 1"),
        ("random", {"weight_decay": 0.5}, "Set 'weight-decay' in your client"),
        ("random", {"partition": "iid"}, "Set 'partition' in your client"),
        ("random", {"curvature_layers": 1}, "Set 'curvature-layers' to 0"),
        ("random", {"kept_fractoin": 0.5}, "Did you mean 'kept-fraction'"),
        ("rondom", {}, "Did you mean 'random'"),
        ("hetero-select", {"probe_bits": 8}, "Set 'probe-bits' to 32: .* restore a rounded model"),
        ("random", {"out": None, "resume": "auto"}, "Set 'out'"),
    ],
)
def test_what_a_users_app_cannot_have_is_refused_with_fedsels_word_for_it(name, options, message):
    with pytest.raises(ConfigError, match=message):
        fedsel_app.strategy(name, **{"out": "runs/none"} | SIZES | options)


def test_without_a_number_of_rounds_start_has_flowers_three_or_those_of_the_strategy():
    assert set(started(num_rounds=None).train_metrics_clientapp) == {1, 2, 3}
    assert set(started(num_rounds=None, options={"rounds": 2}).train_metrics_clientapp) == {1, 2}


@pytest.mark.parametrize("wrapper", ["ServerSideFixed", "ServerSideAdaptive", "ClientSideFixed", "ClientSideAdaptive"])
def test_flowers_wrappers_for_privacy_are_refused_before_any_training(wrapper):
    seen, inner = [], fedsel_app.strategy("random", **SIZES)
    kind = getattr(strategies, f"DifferentialPrivacy{wrapper}Clipping")
    norm = {"clipping_norm": 1.0} if wrapper.endswith("Fixed") else {}
    wrapped = kind(inner, noise_multiplier=0.1, num_sampled_clients=2, **norm)
    grid = grid_of(seen)
    grid.send_and_receive = None
    with pytest.raises(ConfigError, match=ALONE):
        wrapped.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
    assert not seen


def test_an_app_of_flowers_legacy_api_is_refused_with_the_section_that_moves_it():
    with pytest.raises(ConfigError, match=re.escape(LEGACY)):
        Server(client_manager=SimpleClientManager(), strategy=fedsel_app.strategy("random", **SIZES)).fit(1, None)
    with pytest.raises(ConfigError, match=re.escape(LEGACY)):
        fedsel_app.client_app(lambda context: None)
    [section] = re.findall(r"under '(.*)'", LEGACY)
    assert f"\n## {section}\n" in PAGES["docs/flower-app.md"]


def test_statistics_of_a_keras_model_are_averaged_whole_by_their_positions(tmp_path):
    """Parameters are compressed. A client with n = 1, 2, 3, 4 examples adds n, on average (1 + 4 + 9 + 16) / 10 = 3."""
    app = fedsel_app.client_app()

    @app.train()
    def train(message, context):
        number = context.node_config["partition-id"] + 1
        arrays = {name: Array(array.numpy() + np.float32(number)) for name, array in message.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": number})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    initial = [np.zeros((3, 2)), np.ones(2), np.zeros(2), np.zeros(2), np.ones(2)]
    record = ArrayRecord([array.astype(np.float32) for array in initial])
    compressed = {"compressor": "top-k", "kept_fraction": 0.1, "kept_warmup_rounds": 0, "fraction_evaluate": 0.0}
    built = fedsel_app.strategy("full", statistics=[3, 4], **SIZES | compressed)
    grid = InProcessGrid(app, {90 + client: node(client, tmp_path) for client in range(CLIENTS)})
    found = list(built.start(grid=grid, initial_arrays=record, num_rounds=1).arrays.to_numpy_ndarrays())
    np.testing.assert_allclose(found[3], [3.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(found[4], [4.0, 4.0], rtol=1e-6)
    assert 0 < np.count_nonzero(np.concatenate([found[0].ravel(), found[1] - 1.0, found[2]])) < 10
