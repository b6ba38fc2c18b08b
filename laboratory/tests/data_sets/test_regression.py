"""The clustered linear regression against the model that FedCVR-Bolt's text gives."""

import numpy as np
import pytest

from fedsel_app.config import DataConfig, PartitionConfig
from fedsel_app.data.dataset import load
from fedsel_app.data.partition import split
from laboratory.data_sets.regression import generate


def per_client(made, key):
    return made[key].reshape(len(np.unique(made["owners"])), -1, *made[key].shape[1:])


def test_clients_of_a_cluster_share_inputs_and_law_and_those_of_two_clusters_do_not():
    """1000 clients with 100 examples each: their mean inputs form two narrow groups of equal size, the clusters."""
    made = generate(1000, 2, False, 0.2, seed=3)
    means = per_client(made, "x_train").mean(axis=(1, 2))
    first = means > (means.min() + means.max()) / 2
    assert 400 < first.sum() < 600
    slopes = []
    for cluster in (first, ~first):
        # s_j is at most 1, so a mean of 100 is within 0.1, four standard deviations at most 0.4.
        assert np.ptp(means[cluster]) < 0.8
        x, y = per_client(made, "x_train")[cluster].ravel(), per_client(made, "y_train")[cluster].ravel()
        ratio = y / x  # the weight of each example, N(theta_j, sigma_j^2)
        slopes.append(np.median(ratio))
        assert 0.5 * 0.9 < np.subtract(*np.quantile(ratio, [0.8413, 0.1587])) / 2 < 1.0 * 1.1
        assert abs(np.median(ratio)) < 6.1
    assert abs(slopes[0] - slopes[1]) > 0.1


def test_the_laws_of_many_clusters_are_as_wide_as_the_text_says():
    """Means from U(-6, 6) have a variance of 12; the squares of deviations from U(0.5, 1) have a mean of 7/12."""
    made = generate(1000, 10**9, False, 0.2, seed=4)
    x, y = (per_client(made, key).reshape(1000, -1).astype(np.float64) for key in ("x_train", "y_train"))
    for drawn in (x, y / x):
        assert drawn.mean(axis=1).var() == pytest.approx(12, rel=0.1)
        assert drawn.var(axis=1, ddof=1).mean() == pytest.approx(7 / 12, rel=0.05)


def test_the_data_set_is_not_normalised_and_natural_gives_each_client_its_own_data():
    made = load(DataConfig(data="laboratory.data_sets.regression:load", data_arguments="clients=4"), 1)
    assert (made.task, made.classes, made.sample_shape) == ("regression", 1, (1,))
    assert (made.mean.tolist(), made.std.tolist()) == ([0.0], [1.0])
    parts = split(PartitionConfig(partition="natural"), made.y_train, 4, 1, made.owners)
    assert [part.tolist() for part in parts] == [list(range(start, start + 100)) for start in (0, 100, 200, 300)]
