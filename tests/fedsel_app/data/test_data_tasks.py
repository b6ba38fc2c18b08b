"""Targets that are not a single class, and what is known of published sets without their files."""

import numpy as np
import pytest

from fedsel_app.config import ConfigError, DataConfig
from fedsel_app.data.dataset import from_arrays, load, load_surrogate

X = np.ones((3, 4), np.float32)
MULTI = np.array([[1, 0], [0, 0], [1, 1]])


def arrays(y, task, **changed):
    return {"x_train": X, "y_train": y, "x_test": X, "y_test": y, "task": task} | changed


@pytest.mark.parametrize("kind", [bool, np.int64, np.float64])
def test_multi_label_targets_become_float32(kind):
    made = from_arrays(arrays(MULTI.astype(kind), "multi-label"), "mine")
    assert (made.task, made.classes) == ("multi-label", 2)
    assert made.y_train.dtype == made.y_test.dtype == np.float32
    assert made.y_test.tolist() == MULTI.tolist()


def test_regression_targets_become_float32():
    made = from_arrays(arrays(np.array([0.5, -2.0, 3.0]), "regression"), "mine")
    assert (made.task, made.classes, made.y_train.dtype) == ("regression", 1, np.float32)
    assert made.y_train.tolist() == [0.5, -2.0, 3.0]
    assert from_arrays(arrays(np.array([1, 2, 3]), "regression"), "mine").y_train.dtype == np.float32


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (arrays(MULTI, "ranking"), "mine has the task 'ranking'. It must be one of classification, multi-label, reg"),
        (arrays(MULTI, "classification"), r"y_train of type int64 and shape \(3, 2\). It must be whole numbers"),
        (arrays(MULTI[:, 0], "multi-label"), r"shape \(3,\). For multi-label it must be zeros and ones of shape"),
        (arrays(2 * MULTI, "multi-label"), "values in y_train other than 0 and 1"),
        (arrays(MULTI, "multi-label", y_test=np.zeros((3, 5))), "2 labels in y_train and 5 in y_test"),
        (arrays(MULTI[:, :, None], "regression"), r"shape \(3, 2, 1\). For regression it must be numbers of shape"),
        (arrays(MULTI, "regression", y_test=np.zeros((3, 5))), "2 .* in y_train and 5 in y_test"),
        (arrays(np.array([0.0, np.nan, 1.0]), "regression"), "values in y_train that are not finite"),
    ],
)
def test_targets_that_do_not_fit_their_task_are_refused(made, said):
    with pytest.raises(ConfigError, match=f"^mine.*{said}|^{said}"):
        from_arrays(made, "mine")


def test_tasks_in_npz_files_and_their_surrogates(tmp_path):
    np.savez(tmp_path / "set.npz", **arrays(MULTI, np.array("multi-label")))
    made = load(DataConfig(data="npz", data_path=str(tmp_path / "set.npz")), 0)
    assert (made.task, made.y_train.shape) == ("multi-label", (3, 2))
    np.savez(tmp_path / "few.npz", x=X[:2], y=MULTI[1:])
    surrogate = load_surrogate(tmp_path / "few.npz", made)
    assert (surrogate.task, surrogate.y_test.tolist()) == ("multi-label", [[0, 0], [1, 1]])
    np.savez(tmp_path / "other.npz", x=X[:2], y=MULTI[1:, :1])
    with pytest.raises(ConfigError, match=r"1 classes, but the data set has.* and 2\. They must match"):
        load_surrogate(tmp_path / "other.npz", made)
