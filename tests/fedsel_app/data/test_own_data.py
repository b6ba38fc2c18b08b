"""A user's own data: CSV, image folders without a split, partition functions, and files of the wrong kind."""

import re

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig, PartitionConfig
from fedsel_app.data.client_parts import client_parts
from fedsel_app.data.dataset import load

TABLE = "acid,sugar,kind,cellar\n" + "".join(f"{i}.5,{-i},{'red' if i % 2 else 'white'},{i % 3}\n" for i in range(20))


@pytest.fixture
def table(tmp_path):
    (tmp_path / "wine.csv").write_text(TABLE)
    return str(tmp_path / "wine.csv")


def test_a_table_is_read_with_its_label_named(table):
    data = load(DataConfig(data="csv", data_path=table, data_arguments='label="kind", owner="cellar"'), 1)
    assert (data.x_train.shape, data.x_test.shape, data.classes) == ((16, 2), (4, 2), 2)
    values = np.concatenate([data.x_train, data.x_test])
    labels = np.concatenate([data.y_train, data.y_test])
    assert labels.tolist() == [int(acid - 0.5 + 1) % 2 for acid in values[:, 0]]  # red is 0, white is 1
    assert data.owners.tolist() == [int(acid - 0.5) % 3 for acid in data.x_train[:, 0]]


def ramp(config, *, examples=20, classes=2):
    """A user's data set: as many training and test examples, numbered from 0."""
    x, y = np.arange(examples, dtype=np.float32)[:, None], np.arange(examples) % classes
    return x, y, x, y


def test_a_users_function_gets_the_arguments_of_the_data_by_their_names():
    name = f"{__name__}:ramp"
    made = load(DataConfig(data=name, data_arguments="examples=9, classes=3"), 1)
    assert (len(made.x_train), made.classes) == (9, 3)
    assert len(load(DataConfig(data=name), 1).x_train) == 20
    said = (
        f"The 'data-arguments' of {name} must be arguments of its function: got an unexpected keyword argument 'size'."
    )
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(DataConfig(data=name, data_arguments="size=9"), 1)


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        ("synthetic", "clients=2, gamma=1.0", "got an unexpected keyword argument 'gamma'"),
        ("synthetic", "clients=2, alpha=-1.0", "The 'alpha' parameter must be a number of at least 0. Got -1.0."),
        ("synthetic", "clients=2, beta=inf", "The 'beta' parameter must be a number of at least 0. Got inf."),
        ("synthetic", "clients=0", "The 'clients' parameter must be a whole number of at least 1. Got 0."),
        ("regression", "clients=2, clusters=true", "The 'clusters' parameter must be a whole number of at least 1."),
        ("regression", "clients=2, intercept=1", "The 'intercept' parameter must be true or false. Got 1."),
        ("ecg", "examples=0", "The 'examples' parameter must be a whole number of at least 1. Got 0."),
        ("femnist", "writers=3", "got an unexpected keyword argument 'writers'"),
        ("digits", "examples=3", "Leave out the 'data-arguments': the 'data' digits has none."),
    ],
)
def test_arguments_that_a_data_set_does_not_take_are_refused(data, arguments, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(DataConfig(data=data, data_arguments=arguments), 1)


@pytest.fixture
def functions(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_partitions.py").write_text(
        "import numpy as np\n\n\n"
        "def split(labels, clients, rng):\n    return np.array_split(rng.permutation(len(labels)), clients)\n\n\n"
        "def twice(labels, clients, rng):\n    return [[0]] * clients\n\n\n"
        "def short(labels, clients, rng):\n    return [[0]]\n\n\n"
        "def beyond(labels, clients, rng):\n    return [[len(labels)], [0], [1]]\n\n\n"
        "def nothing(labels, clients, rng):\n    pass\n\n\n"
        "def keyed(labels, clients, rng):\n    return {client: [client] for client in range(clients)}\n"
    )
    return load(DataConfig(), 1)


def test_a_partition_may_be_a_users_function(functions):
    config = PartitionConfig(partition="own_partitions:split")
    first, again, other = (client_parts(config, functions, 3, seed) for seed in (1, 1, 2))
    assert [part.size for part in first] == [480, 479, 479]
    assert np.array_equal(np.sort(np.concatenate(first)), np.arange(1438))
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("twice", "must return 3 lists of positions in 0 to 1437, without repetition. Position 0 is repeated."),
        ("short", "must return 3 lists of positions in 0 to 1437, one for each client. Got 1."),
        ("beyond", "must return 3 lists of positions in 0 to 1437. Client 0 has [1438]."),
        ("nothing", "must return 3 lists of positions in 0 to 1437. Got NoneType."),
        ("keyed", "must return 3 lists of positions in 0 to 1437. Got dict."),
    ],
)
def test_a_wrong_partition_is_described(name, said, functions):
    with pytest.raises(ConfigError, match=re.escape(said)):
        client_parts(PartitionConfig(partition=f"own_partitions:{name}"), functions, 3, 1)
