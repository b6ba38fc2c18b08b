"""Strategies in a user's app, with unchanged clients, and with clients changed by one line."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.superlink.grid import InMemoryGrid

import fedsel_app
from fedsel_app.config import ConfigError
from fedsel_app.records.files import MachineFault
from simulation.apps.server import user_clients
from simulation.apps.server.settings import app_config, requirements
from strategies import STRATEGIES
from tests.support.in_process_grid import InProcessGrid
from tests.support.logs import logged
from tests.support.own_app import CLIENTS, by_name, data, model, node, register, trained
from tests.support.rounds import bits, read_rows, without_wall

pytestmark = pytest.mark.usefixtures("task_identity")
ROUNDS = 3
QUICK = {
    "fedcor": {"warmup": 1, "first_steps": 2, "steps": 1},
    "fedcvr-bolt": {"warmup_rounds": 1},
    "terraform": {"iterations": 1},
}
FUNCTIONS = {
    "label_counts": lambda context: np.bincount(data(context.node_config["partition-id"])[1], minlength=2),
    "gradient_deviation": lambda context, arrays: 1.0 + context.node_config["partition-id"],
}


def started(name, app, folder=None, state_dir="", *, start=None, **settings):
    """Result of a run of fedsel's strategy with four clients of `app`."""
    built = fedsel_app.strategy(name, clients=CLIENTS, cohort=2, out=folder, **settings)
    grid = InProcessGrid(app, {90 + client: node(client, state_dir) for client in range(CLIENTS)})
    options = {"num_rounds": ROUNDS, "train_config": ConfigRecord({"mine": 7})} | (start or {})
    return built.start(grid=grid, initial_arrays=by_name(model()), **options)


def settings_of(name):
    """Settings with which the method `name` runs, and with which no result depends on measured times."""
    shared = {"links": "simulated", "checkpoint_every": 0} | QUICK.get(name, {})
    try:
        app_config(name, {"clients": CLIENTS, "cohort": 2})
    except ConfigError:
        return shared | {"compressor": "top-k"}
    return shared


@pytest.mark.parametrize("name", ["fed-cbs", "delta", "optrate"])
def test_methods_get_what_the_functions_of_fedsels_line_tell(tmp_path, name):
    app = register(fedsel_app.client_app(**FUNCTIONS), [])
    started(name, app, tmp_path / "run", tmp_path / "state", **settings_of(name))
    assert all(row["aggregated"] == row["selected"] for row in read_rows(tmp_path / "run"))


@pytest.mark.parametrize(
    "name", [name for name in STRATEGIES if not list(requirements(app_config(name, {**settings_of(name)})))]
)
def test_clients_without_a_line_of_fedsels_take_part(tmp_path, name):
    seen = []
    result = started(name, register(ClientApp(), seen), tmp_path / "run", **settings_of(name))
    assert all(row["aggregated"] == row["selected"] for row in read_rows(tmp_path / "run"))
    assert set(result.train_metrics_clientapp) == {row["round"] for row in read_rows(tmp_path / "run")}
    assert all(list(records) == ["arrays", "config"] for _, _, records in seen)
    assert all(records["config"]["mine"] == 7 for _, kind, records in seen if kind == "train")
    assert all(records["config"]["server-round"] >= 1 for _, _, records in seen)


def test_the_result_has_the_metrics_of_flowers_own(tmp_path):
    tested = []

    def evaluate(number, arrays):
        tested.append((number, list(arrays)))
        return MetricRecord({"loss": 0.25, "accuracy": 0.75, "f1": 0.5})

    app = register(fedsel_app.client_app(), [])
    result = started("random", app, tmp_path / "run", client_eval=True, start={"evaluate_fn": evaluate})
    assert tested == [(number, list(by_name(model()))) for number in range(ROUNDS + 1)]
    assert set(result.evaluate_metrics_serverapp) == set(range(ROUNDS + 1))
    assert [row["accuracy"] for row in read_rows(tmp_path / "run")] == [0.75] * ROUNDS
    assert read_rows(tmp_path / "run")[0]["metrics"] == {"loss": 0.25, "f1": 0.5}
    assert result.evaluate_metrics_clientapp[1]["eval_acc"] == 0.5


def test_a_score_of_another_name_leaves_the_accuracy_in_the_records(tmp_path):
    def evaluate(number, arrays):
        return MetricRecord({"loss": 0.25, "accuracy": 0.75, "auc": 0.5})

    app = register(
        fedsel_app.client_app(), [], loss=lambda client, loss: {"loss": loss, "auc": 0.625, "accuracy": 0.25}
    )
    result = started("random", app, tmp_path / "run", score_key="auc", start={"evaluate_fn": evaluate})
    row = read_rows(tmp_path / "run")[0]
    assert (row["auc"], row["metrics"]) == (0.5, {"loss": 0.25, "accuracy": 0.75})
    assert result.evaluate_metrics_clientapp[1]["auc"] == 0.625
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == 0.25


@pytest.mark.parametrize("name", ["eval-loss", "test_logloss", "RMSE", "val/perplexity"])
def test_of_a_score_that_is_an_error_the_lowest_is_best(tmp_path, name):
    """It is 1, 2, 3 in these rounds."""
    options = {"score_key": name, "target": 1.5}
    start = {"evaluate_fn": lambda number, arrays: MetricRecord({name: number})}
    started("random", register(ClientApp(), []), tmp_path / "run", start=start, **options)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [value for key, value in summary.items() if key.startswith("peak")] == [1.0]
    assert summary["rounds_to_target"] == 1


def test_other_names_of_records_and_metrics():
    renamed = ClientApp()

    @renamed.train()
    def train(message, context):
        client = context.node_config["partition-id"]
        arrays = trained(message.content["weights"].to_numpy_ndarrays(), client)
        assert message.content["settings"]["mine"] == 7
        records = {"weights": by_name(arrays), "numbers": MetricRecord({"n": len(data(client)[1])})}
        return Message(RecordDict(records), reply_to=message)

    keys = {"arrayrecord_key": "weights", "configrecord_key": "settings", "weighted_by_key": "n"}
    result = started("random", renamed, links="simulated", **keys)
    expected = started("random", register(ClientApp(), []), links="simulated")
    for found, other in zip(result.arrays.to_numpy_ndarrays(), expected.arrays.to_numpy_ndarrays(), strict=True):
        np.testing.assert_array_equal(found, other)


@pytest.mark.parametrize("function", ["train", "losses", "label_counts"])
def test_an_exception_in_a_users_function_is_told_with_the_function_its_type_and_its_line(function):
    def broken(*arguments):
        return {"a": 1}["b"]

    functions = {"label_counts": lambda context: [5, 5], "losses": lambda context, arrays: np.ones(10)}
    if function == "train":
        app = fedsel_app.client_app(**functions)
        app.train()(broken)
    else:
        app = register(fedsel_app.client_app(**functions | {function: broken}), [])
    line = broken.__code__.co_firstlineno + 1
    told = rf"The function '{function}' failed with KeyError: 'b' \(test_app_strategy\.py, line {line}\)"
    with pytest.raises((RuntimeError, ConfigError), match=told):
        started("hetero-select-stable", app, links="simulated")


@pytest.mark.parametrize("name", ["fed-cbs", "hetero-select-stable"])
def test_the_number_of_classes_is_that_of_the_clients_label_counts(tmp_path, name):
    """The last array has two entries, as the head of a model may have one, and LoRA's adapters any number."""
    counts = {"label_counts": lambda context: [1, 2, 3, 0, 4 + 10 * context.node_config["partition-id"]]}
    started(name, register(fedsel_app.client_app(**counts), []), tmp_path / "run", tmp_path, links="simulated")
    assert [len(row["aggregated"]) for row in read_rows(tmp_path / "run")] == [2] * ROUNDS


def test_a_method_that_reads_the_output_layer_says_which_arrays_it_takes_for_it():
    with logged("flwr") as log:
        started("hics-fl", register(ClientApp(), []), links="simulated", start={"num_rounds": 1})
    assert "reads the biases of the output layer: arrays 4 and 5 of the initial model, with 2 outputs." in log()


def test_a_client_whose_enrolment_fails_is_not_taken_for_one_without_fedsels_line():
    broken = register(ClientApp(), [])

    @broken.query("fedsel")
    def query(message, context):
        raise ValueError("the disk is gone")

    with pytest.raises(ConfigError, match=r"No client could be enrolled\. .* its enrolment failed: the disk is gone"):
        started("random", broken, links="simulated")


def test_other_rounds_than_those_that_were_set_are_refused():
    with pytest.raises(ConfigError, match="The strategy has 5 'rounds', but start has num_rounds=3"):
        started("random", register(ClientApp(), []), rounds=5)


class Simulated(InProcessGrid, InMemoryGrid):
    """Grid that is in this process, as that of a simulation is. It has registered the nodes in their order."""

    def __init__(self, app, contexts):
        super().__init__(app, contexts)
        nodes = [SimpleNamespace(node_id=number, registered_at=f"12:00:0{at}") for at, number in enumerate(contexts)]
        self.state = SimpleNamespace(get_node_info=lambda: nodes[::-1])


def simulated(app, ids=range(90, 90 + CLIENTS), state_dir="", kind=Simulated):
    """A simulated grid with these ids of the nodes, by partition id."""
    return kind(app, {number: node(client, state_dir) for client, number in enumerate(ids)})


def test_a_simulated_client_that_cannot_write_its_state_ends_the_run_and_the_same_program_goes_on(tmp_path):
    """As in fedsel's own runs: it counted as a failure of the client, and the run went on without it."""

    def run(name):
        options = {"clients": CLIENTS, "cohort": 2, "links": "simulated", "compressor": "top-k", "resume": "auto"}
        built = fedsel_app.strategy("random", out=tmp_path / name, **options)
        grid = simulated(register(fedsel_app.client_app(), []), state_dir=tmp_path / f"states-{name}")
        result = built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=ROUNDS)
        return result.arrays.to_numpy_ndarrays()

    (tmp_path / "states-b").touch()
    with pytest.raises(MachineFault, match=r"Client \d cannot write its state .*Free the disk.*start the same program"):
        run("b")
    (tmp_path / "states-b").unlink()
    assert bits(run("b")) == bits(run("a"))
    assert without_wall(read_rows(tmp_path / "b")) == without_wall(read_rows(tmp_path / "a"))


def test_in_a_simulation_unchanged_clients_have_their_partition_ids(tmp_path):
    """Flower registers the nodes by partition id, and draws their ids at random."""
    ids = [77, 5, 901, 12]
    grid = simulated(register(ClientApp(), []), ids)
    built = fedsel_app.strategy("full", clients=CLIENTS, cohort=CLIENTS, links="simulated", out=tmp_path)
    built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1)
    examples = {row["client"]: row["examples"] for row in read_rows(tmp_path, "clients.jsonl")}
    assert examples == {client: len(data(client)[1]) for client in range(CLIENTS)}


def test_a_simulation_that_still_adds_its_nodes_is_awaited(monkeypatch):
    """Flower starts the server while it adds the nodes."""
    monkeypatch.setattr(user_clients, "REGISTRATION_S", 0.01)

    class Starting(Simulated):
        calls = 0

        def get_node_ids(self):
            self.calls += 1
            return super().get_node_ids()[: 2 * (self.calls - 1)]

    grid = simulated(register(ClientApp(), []), kind=Starting)
    built = fedsel_app.strategy("full", clients=CLIENTS, cohort=CLIENTS)
    assert list(built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=1).train_metrics_clientapp) == [1]


def test_a_simulation_of_unchanged_clients_goes_on_to_the_same_model(tmp_path):
    """Each process has nodes of other ids, and the clients keep their numbers and with them their part in the draws."""

    class Stop(Exception):
        pass

    def stopping(number, arrays):
        if number == 3:
            raise Stop

    def run(ids, folder, **start):
        grid = simulated(register(ClientApp(), []), ids)
        options = {"links": "simulated", "checkpoint_every": 2, "resume": "auto"}
        built = fedsel_app.strategy("random", clients=CLIENTS, cohort=2, out=tmp_path / folder, **options)
        return built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=4, **start).arrays.to_numpy_ndarrays()

    whole = run([1, 2, 3, 4], "a")
    with pytest.raises(Stop):
        run([40, 30, 20, 10], "b", evaluate_fn=stopping)
    assert bits(run([7, 9, 6, 8], "b")) == bits(whole)


def test_a_simulation_with_too_few_nodes_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(user_clients, "REGISTRATION_S", 0.01)
    grid = simulated(ClientApp(), range(90, 89 + CLIENTS))
    built = fedsel_app.strategy("random", clients=CLIENTS, cohort=2, connect_timeout_s=3600)
    with pytest.raises(ConfigError, match=f'3 nodes for {CLIENTS} clients. Give `flwr run` --federation-config "num-s'):
        built.start(grid=grid, initial_arrays=by_name(model()), num_rounds=ROUNDS)
    assert not grid.pushed
