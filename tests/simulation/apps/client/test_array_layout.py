"""Array layout: parameters, running statistics and kept arrays of a list, and the conversion back."""

import numpy as np
import pytest
import torch

from fedsel_app.config import ConfigError
from simulation.apps.client.array_layout import ArrayLayout, batch_norm_statistics


def state_dict():
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Linear(5, 2))
    return [value.numpy() for value in net.state_dict().values()]


def test_pytorchs_running_statistics_are_found_by_their_order():
    assert batch_norm_statistics(state_dict()) == [4, 5]
    layout = ArrayLayout(state_dict())
    assert (layout.parameters, layout.statistics) == ((0, 1, 2, 3, 7, 8), (4, 5))
    assert (layout.size, layout.classes, layout.has_class_biases) == (27 + 3 + 3 + 3 + 10 + 2, 2, True)
    assert [(layer.start, layer.stop) for layer in layout.layers] == [(0, 30), (30, 36), (36, 48)]


def test_the_list_comes_back_in_its_shapes_and_dtypes_and_whole_numbers_stay():
    arrays = [np.arange(6.0).reshape(2, 3), np.array([7]), np.float16(0.5) * np.ones(2, np.float16), np.array([True])]
    layout = ArrayLayout(arrays)
    parameters, statistics = layout.flatten(arrays)
    assert parameters.tolist() == [0, 1, 2, 3, 4, 5, 0.5, 0.5]
    back = layout.restore(parameters + 1, statistics)
    assert [array.dtype for array in back] == [array.dtype for array in arrays]
    assert back[0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (back[1].tolist(), back[2].tolist(), back[3].tolist()) == ([7], [1.5, 1.5], [True])


def test_statistics_may_be_named():
    layout = ArrayLayout([np.ones(2, np.float32), np.zeros(3, np.float32)], [1])
    parameters, statistics = layout.flatten([np.full(2, 5.0), np.full(3, 6.0)])
    assert (parameters.tolist(), statistics.tolist()) == ([5, 5], [6, 6, 6])


@pytest.mark.parametrize(
    ("arrays", "statistics", "message"),
    [
        ([np.array([1])], None, "a model with arrays of finite floats"),
        ([np.ones(1), np.array([1])], [1], "position 1 has no float array"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(arrays, statistics, message):
    with pytest.raises(ConfigError, match=message):
        ArrayLayout(arrays, statistics)


def test_another_model_is_refused():
    with pytest.raises(ValueError, match=r"the first, number 0, has \(3,\) in place of \(2,\)"):
        ArrayLayout([np.ones(2)]).flatten([np.ones(3)])


# Arrays by their names


def named():
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Linear(5, 2))
    return {name: value.numpy() for name, value in net.state_dict().items()}


def test_running_statistics_are_known_by_their_names():
    layout = ArrayLayout(named())
    assert [layout.names[place] for place in layout.statistics] == ["1.running_mean", "1.running_var"]
    assert layout.parameters == ArrayLayout(state_dict()).parameters
    assert layout.layers == ArrayLayout(state_dict()).layers
    untracked = {name: value for name, value in named().items() if "tracked" not in name}
    assert ArrayLayout(untracked).statistics == (4, 5)
    assert ArrayLayout(list(untracked.values())).statistics == ()
    assert layout.variances.tolist() == [False] * 3 + [True] * 3


def test_statistics_are_a_mean_and_a_variance_with_the_same_prefix():
    assert ArrayLayout({"running_mean_of_inputs": np.ones(2), "running_var": np.ones(2)}).statistics == ()
    apart = {"a.running_mean": np.ones(2), "b.running_var": np.ones(2), "c.weight": np.ones(3)}
    assert ArrayLayout(apart).statistics == ()
    turned = ArrayLayout({"a.running_var": np.ones(2), "w": np.ones(3), "a.running_mean": np.ones(2)})
    assert turned.statistics == (0, 2)
    assert turned.variances.tolist() == [True, True, False, False]


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_an_array_with_a_value_that_is_not_finite_keeps_its_values(value):
    mask = np.where(np.triu(np.ones((3, 3)), 1), value, 0.0)
    layout = ArrayLayout({"mask": mask, "out.weight": np.ones((2, 3)), "out.bias": np.zeros(2)})
    assert layout.parameters == (1, 2)
    arrays = layout.restore(np.full(8, 2.0, np.float32), np.zeros(0, np.float32))
    np.testing.assert_array_equal(arrays[0], mask)
    assert layout.flatten(arrays)[0].tolist() == [2.0] * 8


def test_if_names_are_numbers_the_order_shows_the_statistics():
    numbers = dict(zip(map(str, range(9)), state_dict(), strict=True))
    assert ArrayLayout(numbers).statistics == (4, 5)


def test_named_arrays_may_have_any_order_and_are_restored_in_the_first():
    arrays, layout = named(), ArrayLayout(named())
    turned = {name: arrays[name] for name in reversed(arrays)}
    for flat, expected in zip(layout.flatten(turned), layout.flatten(list(arrays.values())), strict=True):
        np.testing.assert_array_equal(flat, expected)
    back = layout.named(layout.restore(*layout.flatten(turned)))
    assert list(back) == list(arrays)
    for name, array in back.items():
        assert array.dtype == arrays[name].dtype
        np.testing.assert_array_equal(array, arrays[name])
    assert list(ArrayLayout(state_dict()).named(state_dict())) == [str(place) for place in range(9)]


def test_statistics_may_be_given_by_name():
    arrays = {"weight": np.ones(2, np.float32), "moving": np.zeros(3, np.float32)}
    assert ArrayLayout(arrays, ["moving"]).statistics == ArrayLayout(arrays, [1]).statistics == (1,)
    with pytest.raises(ConfigError, match="no array named 'moved'"):
        ArrayLayout(arrays, ["moved"])


def test_named_arrays_of_another_model_are_refused_by_name():
    layout = ArrayLayout({"a": np.ones(2), "b": np.ones(3)})
    with pytest.raises(ValueError, match=r"has the 2 arrays a, b, and the ones that came differ in b, c: a client's"):
        layout.flatten({"a": np.ones(2), "c": np.ones(3)})
    with pytest.raises(ValueError, match=r"of 2 arrays with others, the first, a, has \(3,\) in place of \(2,\)"):
        layout.flatten({"b": np.ones(2), "a": np.ones(3)})
