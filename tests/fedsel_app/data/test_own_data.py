"""A user's own data: CSV, image folders without a split, partition functions, and files of the wrong kind."""

import re

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load


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


def drawn(config, seed, examples=20):
    """A user's data set that the seed draws."""
    x = np.random.default_rng(seed).normal(size=(examples, 1)).astype(np.float32)
    return x, np.arange(examples) % 2, x, np.arange(examples) % 2


def test_a_users_function_gets_the_seed_of_the_run_if_it_has_a_parameter_of_this_name():
    first, other = (load(DataConfig(data=f"{__name__}:drawn"), seed).x_train for seed in (1, 2))
    assert np.array_equal(first, drawn(None, 1)[0])
    assert not np.array_equal(first, other)
    fixed = DataConfig(data=f"{__name__}:drawn", data_arguments="seed=1")
    assert np.array_equal(load(fixed, 2).x_train, first)
