"""A user's own data: CSV, image folders without a split, partition functions, and files of the wrong kind."""

import re

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
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
