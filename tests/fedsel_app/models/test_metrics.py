"""Metrics of torchmetrics beside scikit-learn's, to 1e-6."""

import numpy as np
import pytest
import sklearn.metrics
import torch

from fedsel_app.config.run import METRICS, EvaluationConfig, lower_wins
from fedsel_app.models.metrics import measured

RNG = np.random.default_rng(3)
OUTPUTS = RNG.normal(size=(200, 4)).astype(np.float32)
CLASSES, LABELS = RNG.integers(0, 4, 200), (RNG.random((200, 4)) < 0.3).astype(np.float32)
OUTPUTS[np.arange(200), CLASSES] += 0.7
EACH = {
    "f1": sklearn.metrics.f1_score,
    "precision": sklearn.metrics.precision_score,
    "recall": sklearn.metrics.recall_score,
}
CURVES = {"auroc": sklearn.metrics.roc_auc_score, "average_precision": sklearn.metrics.average_precision_score}


def names(task):
    return tuple(name for name, metric in METRICS.items() if task in metric.tasks)


def averages(y, predicted, probabilities, one_hot):
    """Values by scikit-learn for all averages of `EACH` and `CURVES`."""
    found = {}
    for name, function in EACH.items():
        for average in ("macro", "micro", "weighted"):
            found[f"{name}_{average}"] = function(y, predicted, average=average)
        found |= {f"{name}_{place}": value for place, value in enumerate(function(y, predicted, average=None))}
    for name, function in CURVES.items():
        found[name] = function(one_hot, probabilities, average="macro")
        found[f"{name}_weighted"] = function(one_hot, probabilities, average="weighted")
        each = function(one_hot, probabilities, average=None)
        found |= {f"{name}_{place}": value for place, value in enumerate(each)}
    return found


def test_classification_is_scikit_learns():
    odds = np.exp(OUTPUTS.astype(np.float64))
    predicted, probabilities = OUTPUTS.argmax(axis=1), odds / odds.sum(axis=1, keepdims=True)
    expected = averages(CLASSES, predicted, probabilities, np.eye(4)[CLASSES]) | {
        "balanced_accuracy": sklearn.metrics.balanced_accuracy_score(CLASSES, predicted),
        "mcc": sklearn.metrics.matthews_corrcoef(CLASSES, predicted),
        "kappa": sklearn.metrics.cohen_kappa_score(CLASSES, predicted),
    }
    found = measured(names("classification"), "classification", torch.tensor(OUTPUTS), torch.tensor(CLASSES))
    assert found == pytest.approx(expected, abs=1e-6)


def test_multi_label_is_scikit_learns():
    expected = averages(LABELS, OUTPUTS > 0, 1 / (1 + np.exp(-OUTPUTS.astype(np.float64))), LABELS)
    found = measured(names("multi-label"), "multi-label", torch.tensor(OUTPUTS), torch.tensor(LABELS))
    assert found == pytest.approx(expected, abs=1e-6)


def test_regression_is_scikit_learns():
    y, predicted = OUTPUTS[:, 0], OUTPUTS[:, 1]
    expected = {
        "mae": sklearn.metrics.mean_absolute_error(y, predicted),
        "rmse": sklearn.metrics.root_mean_squared_error(y, predicted),
    }
    found = measured(names("regression"), "regression", torch.tensor(predicted)[:, None], torch.tensor(y))
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_class_without_examples_has_no_value_and_is_in_no_mean():
    """A client has the classes 0 and 1 alone, and class 3 is never predicted; class 2 is, by mistake."""
    y, outputs = np.array([0, 0, 1, 1]), np.float32([[3, 0, 0, 0], [0, 0, 2, 0], [0, 2, 0, 0], [0, 1, 0, 0]])
    asked = ("f1-macro", "f1-each", "auroc", "auroc-each", "balanced-accuracy")
    found = measured(asked, "classification", torch.tensor(outputs), torch.tensor(y))
    known = {name: value for name, value in found.items() if not np.isnan(value)}
    # F1 of class 0 is 2/3, of class 1 1, of class 2, which has only a false positive, 0.
    assert known == pytest.approx(
        {
            "f1_macro": 5 / 9,
            "f1_0": 2 / 3,
            "f1_1": 1.0,
            "auroc": (0.75 + 1.0) / 2,
            "auroc_0": 0.75,
            "auroc_1": 1.0,
            "balanced_accuracy": 0.75,
        }
    )


def test_scores_of_one_class_alone_are_undefined():
    y = torch.zeros(3, dtype=torch.int64)
    found = measured(("auroc", "auroc-each", "average-precision"), "classification", torch.randn(3, 2), y)
    assert np.isnan([found["auroc"], found["auroc_0"], found["auroc_1"]]).all()
    assert found["average_precision"] == 1.0


@pytest.mark.parametrize(
    ("score", "key"),
    [
        ("", ""),
        ("f1-died", "f1_0"),
        ("average-precision-not ill", "average_precision_1"),
        ("f1-macro", "f1_macro"),
        ("f1-unknown", "f1_unknown"),
    ],
)
def test_a_score_may_name_its_class(score, key):
    assert EvaluationConfig(score=score).score_key(("died", "not ill", "2", "1")) == key


def test_a_class_that_is_named_like_an_error_does_not_turn_its_score_around():
    assert [lower_wins(name) for name in ("f1_error", "recall_loss", "mae", "my_loss")] == [False, False, True, True]
