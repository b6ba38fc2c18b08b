"""Synthetic(alpha, beta) against what Li et al. publish about it."""

import re

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import load
from laboratory.data_sets.synthetic import generate


def per_client(made, values):
    """`values` of each client's training examples, which are in the order of the clients."""
    return np.split(values, np.flatnonzero(np.diff(made["owners"])) + 1)


@pytest.fixture(scope="module")
def many():
    return generate(400, 1.0, 1.0, 0.2, seed=3)


def test_sizes_are_lognormal_above_fifty(many):
    sizes = np.bincount(many["owners"])
    assert sizes.min() >= 50
    logs = np.log(sizes - 49.5)  # floor takes half an example on average
    # Quartiles of N(4, 2^2): 0.6745 standard deviations from the mean. Their standard error is below 0.15 here.
    assert np.quantile(logs, [0.25, 0.5, 0.75]).tolist() == pytest.approx([4 - 1.349, 4.0, 4 + 1.349], abs=0.45)


def test_inputs_spread_in_a_client_by_the_published_power(many):
    within = np.zeros(60)
    for x in per_client(many, many["x_train"].astype(np.float64)):
        within += ((x - x.mean(axis=0)) ** 2).sum(axis=0)
    within /= len(many["owners"]) - 400
    published = np.array([j**-1.2 for j in range(1, 61)])
    assert within.tolist() == pytest.approx(published.tolist(), rel=0.05)


@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0])
def test_client_centres_differ_by_beta(beta, monkeypatch):
    """The centre's entries are N(B_k, 1) and B_k is N(0, beta^2): a client's mean entry has variance beta^2 + 1/60."""
    monkeypatch.setattr("laboratory.data_sets.synthetic.LOG_MEAN", -9.0)
    made = generate(300, 1.0, beta, 0.2, seed=5)
    centres = np.stack([x.mean(axis=0) for x in per_client(made, made["x_train"].astype(np.float64))])
    levels = centres.mean(axis=1)
    assert levels.var() == pytest.approx(beta**2 + 1 / 60, rel=0.3)
    assert abs(levels.mean()) < 4 * np.sqrt((beta**2 + 1 / 60) / 300)
    assert (centres[:, 30:] - levels[:, None]).var() == pytest.approx(1.0, rel=0.05)


def test_a_clients_data_do_not_depend_on_how_many_clients_there_are(many):
    few = generate(3, 1.0, 1.0, 0.2, seed=3)
    count = len(few["y_train"])
    assert np.array_equal(few["x_train"], many["x_train"][:count])
    assert np.array_equal(few["owners"], many["owners"][:count])
    assert not np.array_equal(generate(3, 1.0, 1.0, 0.2, seed=4)["x_train"][:50], few["x_train"][:50])


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
    ],
)
def test_arguments_out_of_range_are_refused(data, arguments, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(DataConfig(data=f"laboratory.data_sets.{data}:load", data_arguments=arguments), 1)
