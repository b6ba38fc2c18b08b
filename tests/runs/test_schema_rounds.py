"""Machines with files of their own: one schema for all, stated by the server."""

import numpy as np
import pandas as pd
import pytest

from fedsel_app import caches
from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import MISFIT
from fedsel_app.wiring.client_settings import IDENTITY
from simulation.operations.deployment.start import describe_data
from simulation.operations.machines.machine import Machine
from tests.support.logs import logged
from tests.support.own_files import nodes, refusals, run

pytestmark = pytest.mark.usefixtures("task_identity", "no_waiting")

SERVER = 'train="", classes=["ant", "bee", "cat"]'
CITIES = ["Bonn", "Kiel", "Ulm"]
CLIENTS = [0, 1, 2]


@pytest.fixture
def machines(tmp_path):
    """A server's test table, and those of three machines: columns in another order, without some classes and cities.

    They are written to files, and returned: the server's, and one of all clients.
    """
    rng = np.random.default_rng(0)
    whole = pd.DataFrame({"age": rng.normal(50, 9, 90).round(2), "city": rng.choice(CITIES, 90)})
    whole["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 90), "D")
    whole["label"] = np.select([whole["age"] > 55, whole["city"] == "Ulm"], ["cat", "bee"], "ant")
    server, rest = whole[:30], whole[30:].sample(60, random_state=1)
    cats, kiel = rest["label"] == "cat", rest["city"] == "Kiel"
    mine = [
        rest[~cats],
        rest[cats & ~kiel][["label", "day", "city", "age"]],
        rest[cats & kiel][["city", "label", "age", "day"]],
    ]
    server.to_csv(tmp_path / "server.csv", index=False)
    for client, part in enumerate(mine):
        part.to_csv(tmp_path / f"client-{client}.csv", index=False)
    return server, pd.concat(mine)


def in_one_process(folder, data="csv", kind="csv", paths=None, **settings):
    """A run of a server and clients with these files; see `run`."""
    paths = paths or [folder / f"client-{client}.{kind}" for client in CLIENTS]
    server = {
        "data": data,
        "data_path": str(folder / f"server.{kind}"),
        "data_arguments": SERVER if data == "csv" else "",
    }
    return run(folder, nodes(folder, *paths), **server | settings)


def encoded(table, numbers):
    """Features and classes of a table by hand, scaled by the mean and the deviation of another one's `numbers`."""
    days = [(t["day"] - pd.Timestamp("1970-01-01")).dt.days.to_numpy(float) for t in (table, numbers)]
    cities = (table["city"].to_numpy()[:, None] == np.array(CITIES)).astype(float)
    age = (table["age"] - numbers["age"].mean()) / numbers["age"].std(ddof=0)
    x = np.column_stack([age, cities, (days[0] - days[1].mean()) / days[1].std()])
    return x, np.array([["ant", "bee", "cat"].index(name) for name in table["label"]])


def stepped(strategy, x, y, lr=0.5):
    """Weights and biases after a step of softmax regression from the initial model, by hand."""
    weights, bias = np.split(strategy.context.initial.astype(float), [3 * x.shape[1]])
    weights = weights.reshape(3, -1)
    shares = np.exp(x @ weights.T + bias)
    wrong = (shares / shares.sum(axis=1, keepdims=True) - np.eye(3)[y]) / len(y)
    return weights - lr * wrong.T @ x, bias - lr * wrong.sum(axis=0)


@pytest.mark.parametrize("rows", ["none", "others"])
def test_columns_classes_and_scaling_are_the_federations(tmp_path, machines, rows):
    """A round is one step on the pooled rows. The training rows in the server's own file change nothing."""
    server, pooled = machines
    file, arguments = tmp_path / "server.csv", SERVER
    if rows == "others":
        datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
        file, arguments = tmp_path / "server", SERVER.replace('train="", ', "")
        splits = {"test": server, "train": server.assign(age=1000.0 + server["age"])}
        made = {name: datasets.Dataset.from_pandas(table) for name, table in splits.items()}
        datasets.DatasetDict(made).save_to_disk(str(file))
    own = nodes(tmp_path, *(tmp_path / f"client-{client}.csv" for client in CLIENTS), data="csv")
    data = "csv" if rows == "none" else "hf"
    strategy, [row], _ = run(tmp_path, own, data=data, data_path=str(file), data_arguments=arguments)
    assert row["aggregated"] == CLIENTS, refusals(tmp_path)
    is_a_step(strategy, row, pooled, server)


def is_a_step(strategy, row, pooled, server):
    """The round is one step on the pooled rows, tested on the server's."""
    weights, bias = stepped(strategy, *encoded(pooled, pooled))
    np.testing.assert_allclose(strategy.run.model.parameters, np.append(weights, bias), atol=2e-6)
    x, y = encoded(server, pooled)
    assert row["accuracy"] == pytest.approx(((x @ weights.T + bias).argmax(axis=1) == y).mean())


def test_what_takes_the_place_of_a_gap_is_what_the_server_states(tmp_path, machines):
    server, _ = machines
    mine = [pd.read_csv(tmp_path / f"client-{client}.csv", parse_dates=["day"]) for client in CLIENTS]
    rng = np.random.default_rng(3)
    for table in (server := server.reset_index(drop=True), *mine):
        table.loc[rng.random(len(table)) < 0.3, "age"] = np.nan
        table.loc[rng.random(len(table)) < 0.3, "city"] = np.nan
    for name, table in (("server", server), *((f"client-{client}", table) for client, table in enumerate(mine))):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    own = nodes(tmp_path, *(tmp_path / f"client-{client}.csv" for client in CLIENTS), data="csv")
    arguments = SERVER + ', missing="median", fill={age=40, city="Ulm", day=19844}'
    strategy, [row], _ = run(
        tmp_path, own, data="csv", data_path=str(tmp_path / "server.csv"), data_arguments=arguments
    )
    assert row["aggregated"] == CLIENTS, refusals(tmp_path)
    fills = {"age": 40.0, "city": "Ulm"}
    is_a_step(strategy, row, pd.concat(mine).fillna(fills), server.fillna(fills))


MISFITS = {
    "missing column": (lambda t: t.drop(columns="age"), "has no column 'age' of the server's schema"),
    "foreign column": (lambda t: t.assign(extra=1), "has the column 'extra', which the server's schema does not"),
    "text in numbers": (lambda t: t.assign(age=["x", *t["age"][1:]]), "has 'x' in column 'age', line 2, which"),
    "unknown class": (lambda t: t.assign(label="dog"), r"the class 'dog' \(\d+ examples\), or let the server"),
    "no label": (lambda t: t.drop(columns="label"), "does not say which of .* has the labels"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "said"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_is_refused_at_enrolment_and_at_the_next_start(tmp_path, machines, spoil, said):
    """The server's log names the client, whose own log has the sentence."""
    path = tmp_path / "client-0.csv"
    good = pd.read_csv(path)
    spoil(good).to_csv(path, index=False)
    _, [row], _ = in_one_process(tmp_path)
    assert row["aggregated"] == [1, 2]
    [refusal] = refusals(tmp_path)
    assert refusal.endswith(f"enrolment failed: Client 0: {MISFIT}".removesuffix("."))
    good.to_csv(path, index=False)
    assert in_one_process(tmp_path, run_id=2, out=str(tmp_path / "again"))[1][0]["aggregated"] == CLIENTS
    own = {key: value for key, value in nodes(tmp_path, path, data="csv")[0].items() if key not in IDENTITY}
    machine = Machine("client", "localhost", 9092, "1.36", 3, 0, own)
    with caches.of_a_run():
        assert describe_data(tmp_path, machine).startswith(
            f"{len(good)} training and 0 test examples of shape (5,), 3 cl"
        )
    spoil(good).to_csv(path, index=False)
    with (
        caches.of_a_run(),
        pytest.raises(
            ConfigError, match=f"{said}.*If the schema has changed since the last run, remove the files schema"
        ),
    ):
        describe_data(tmp_path, machine)


def test_another_unit_is_told_by_its_column_and_refused_by_a_stated_scaling(tmp_path, machines):
    """Days in place of years."""
    path = tmp_path / "client-0.csv"
    good = pd.read_csv(path)
    good.assign(age=365 * good["age"]).to_csv(path, index=False)
    with logged() as log:
        in_one_process(tmp_path, out=str(tmp_path / "sums"))
    assert log().count("Check the unit of column 'age' of client 0") == 1
    stated = SERVER + ", scaling={age=[50, 9], day=[19800, 80]}"
    _, [row], _ = in_one_process(tmp_path, data_arguments=stated, run_id=2)
    assert row["aggregated"] == [1, 2]
    assert refusals(tmp_path)[0].endswith(f"Client 0: {MISFIT}".removesuffix("."))


CENTRES = {"ant": (4, 0), "bee": (-4, 0), "cat": (0, 6)}


def insects(classes, rows=150):
    """Points around the centres of these classes, and their names."""
    rng = np.random.default_rng(len("".join(classes)))
    labels = rng.choice(classes, rows)
    return np.array([CENTRES[label] for label in labels]) + rng.normal(size=(rows, 2)), labels


def test_a_client_may_lack_the_highest_class_and_each_machine_the_others_part(tmp_path):
    """npz files: the server's without x_train, the clients' without x_test; client 0 failed in every round."""
    for name, classes in (("server", CENTRES), ("client-0", ["ant", "bee"]), ("client-1", CENTRES)):
        points, labels = insects(list(classes))
        part = "test" if name == "server" else "train"
        numbers = np.searchsorted(list(CENTRES), labels)
        np.savez(tmp_path / f"{name}.npz", **{f"x_{part}": points.astype("float32"), f"y_{part}": numbers})
    paths = [tmp_path / f"client-{client}.npz" for client in (0, 1)]
    _, rows, _ = in_one_process(tmp_path, "npz", "npz", paths, rounds=20)
    assert rows[-1]["aggregated"] == [0, 1]
    assert rows[-1]["accuracy"] > 0.98
    points, labels = insects(["ant", "bee"])
    misfits = (
        {"x_train": points[:, :1], "y_train": np.zeros(150, int)},
        {"x_train": points, "y_train": np.full(150, 3)},
        {"x_train": points.astype(int), "y_train": np.zeros(150, int)},
        {"x_train": points, "y_train": np.zeros(150), "task": "regression"},
    )
    for run_id, spoiled in enumerate(misfits, 2):
        np.savez(paths[0], **spoiled)
        in_one_process(tmp_path, "npz", "npz", paths, run_id=run_id, out=str(tmp_path / str(run_id)))
        assert refusals(tmp_path, str(run_id))[0].endswith(f"Client 0: {MISFIT}".removesuffix("."))


def test_a_run_that_is_resumed_keeps_the_scaling_and_the_schema_survives_a_restart_of_a_client(tmp_path, machines):
    whole, _, asked = in_one_process(tmp_path, rounds=3, out=str(tmp_path / "whole"))
    assert [instruction.moments for instruction in asked] == [True] * 3 + [False] * 3

    def stop(row):
        caches.forget()  # as the process of a client that is started again
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_one_process(tmp_path, rounds=3, run_id=2, checkpoint_every=1, on_round=stop)
    resumed, _, asked = in_one_process(tmp_path, rounds=3, run_id=3, resume=True)
    assert [instruction.moments for instruction in asked] == [False] * 3
    assert resumed.run.model.parameters.tobytes() == whole.run.model.parameters.tobytes()


SCALES = ", scaling={age=[50, 9], day=[19800, 80]}"
ASKED = {
    "": r"scaling={age=\[MEAN, DEVIATION\], day=.*fill={age=VALUE, city=VALUE, day=VALUE}",
    SCALES: "State on the server fill={age=VALUE, city=VALUE, day=VALUE} in",
    SCALES + ', fill={age=50, city="Ulm"}': "State on the server fill={day=VALUE} in",
    "rows": r"State on the server the normalisation .* or with share-moments=false\.",
    SCALES + ', fill={age=50, city="Ulm", day=19844}': "",
}
"""What a server states, or training rows of its own -> the sentence that refuses it."""


@pytest.mark.parametrize("stated", ASKED)
@pytest.mark.parametrize(
    "protected",
    [
        {"dp_clip_norm": 1.0, "weighting": "uniform", "dp_delta": 1e-6},
        {"aggregation": "median", "weighting": "uniform"},
    ],
    ids=["private", "robust"],
)
def test_nobody_sends_moments_where_they_would_not_be_protected(tmp_path, machines, protected, stated):
    """A server without training rows asks for all that is missing before it waits, by column."""

    def deploy():
        arguments = SERVER.replace('train="", ', "") if stated == "rows" else f'{SERVER}, missing="median"{stated}'
        return in_one_process(tmp_path, data_arguments=arguments, links="simulated", **protected)

    if ASKED[stated]:
        with pytest.raises(ConfigError, match=ASKED[stated]):
            deploy()
        return
    _, [row], asked = deploy()
    assert row["aggregated"] == CLIENTS
    assert not any(instruction.moments for instruction in asked)


def test_a_client_with_a_part_of_the_servers_data_has_no_place_among_clients_with_their_own(tmp_path, machines):
    paths = [tmp_path / f"client-{client}.csv" for client in CLIENTS]
    own = nodes(tmp_path, *paths)
    own[1] |= {"partition": "iid", "data-arguments": 'classes=["ant", "bee", "cat"]', "data": "csv"}
    server = {"data": "csv", "data_path": str(tmp_path / "server.csv"), "data_arguments": SERVER}
    _, [row], _ = run(tmp_path, own, **server)
    assert row["aggregated"] == [0, 2]
    assert "its data are a part of the server's" in refusals(tmp_path)[0]
