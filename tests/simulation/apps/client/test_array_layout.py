"""Array layout: parameters, running statistics and kept arrays of a list, and the conversion back."""

import numpy as np
import pytest
import torch

from fedsel_app.config import ConfigError
from simulation.apps.client.array_layout import ArrayLayout


def named():
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Linear(5, 2))
    return {name: value.numpy() for name, value in net.state_dict().items()}


def numbered(arrays):
    return dict(zip(map(str, range(len(arrays))), arrays, strict=True))


def test_if_names_are_numbers_the_order_shows_the_statistics():
    layout = ArrayLayout(numbered(named().values()))
    assert (layout.parameters, layout.statistics) == ((0, 1, 2, 3, 7, 8), (4, 5))
    assert (layout.size, layout.classes, layout.has_class_biases) == (27 + 3 + 3 + 3 + 10 + 2, 2, True)
    assert [(layer.start, layer.stop) for layer in layout.layers] == [(0, 30), (30, 36), (36, 48)]


def test_statistics_that_are_no_float_arrays_are_refused():
    with pytest.raises(ConfigError, match="position 1 has no float array"):
        ArrayLayout(numbered([np.ones(1), np.array([1])]), [1])


def test_running_statistics_are_known_by_their_names():
    layout = ArrayLayout(named())
    assert [layout.names[place] for place in layout.statistics] == ["1.running_mean", "1.running_var"]
    assert layout.parameters == (0, 1, 2, 3, 7, 8)
    untracked = {name: value for name, value in named().items() if "tracked" not in name}
    assert ArrayLayout(untracked).statistics == (4, 5)
    assert ArrayLayout(numbered(untracked.values())).statistics == ()
    assert layout.variances.tolist() == [False] * 3 + [True] * 3


def test_statistics_are_a_mean_and_a_variance_with_the_same_prefix():
    assert ArrayLayout({"running_mean_of_inputs": np.ones(2), "running_var": np.ones(2)}).statistics == ()
    apart = {"a.running_mean": np.ones(2), "b.running_var": np.ones(2), "c.weight": np.ones(3)}
    assert ArrayLayout(apart).statistics == ()
    turned = ArrayLayout({"a.running_var": np.ones(2), "w": np.ones(3), "a.running_mean": np.ones(2)})
    assert turned.statistics == (0, 2)
    assert turned.variances.tolist() == [True, True, False, False]
