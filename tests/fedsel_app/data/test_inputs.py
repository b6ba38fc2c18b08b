"""Samples as tensors, and the two inputs on which a model is tried."""

import numpy as np
import pytest
import torch

from fedsel_app.data.inputs import trial_inputs

NAMED = np.zeros(3, np.dtype([("text", np.int64, (2,)), ("age", np.float32)]))
NAMED["text"], NAMED["age"] = [[1, 2], [3, 4], [5, 6]], [0.5, 1.5, 2.5]


@pytest.mark.parametrize(
    ("samples", "kept"),
    [
        (np.array([[5, -1], [7, 2], [9, 9]], np.int64), True),
        (np.array([[5.0, 0.0], [7.0, 2.0], [9.0, 9.0]], np.float32), False),
        (np.array([[5, 3]], np.int64), True),
    ],
)
def test_whole_numbers_are_tokens_and_others_are_replaced(samples, kept):
    """What is kept are the samples with the smallest and with the largest entry; the others begin with -2."""
    flat = samples.reshape(-1).tolist()
    width = samples.shape[1]
    expected = torch.from_numpy(samples[[flat.index(min(flat)) // width, flat.index(max(flat)) // width]])
    found = trial_inputs(samples)
    assert found.shape == (2, 2)
    assert torch.equal(found, expected) == kept
    assert kept or found[0, 0] == -2.0
    assert torch.equal(found, trial_inputs(samples))


def test_each_of_several_inputs_is_tried_by_its_kind():
    found = trial_inputs(NAMED)
    assert found["text"].tolist() == [[1, 2], [5, 6]]
    assert found["age"].shape == (2,)
    assert found["age"].tolist() != [0.5, 1.5]
