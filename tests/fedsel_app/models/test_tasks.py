"""Losses and scores against hand arithmetic, torch's own losses and scikit-learn."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch import nn

from fedsel_app.config import ConfigError, TaskConfig
from fedsel_app.data.dataset import from_arrays
from fedsel_app.models.flat_model import FlatModel, evaluate
from fedsel_app.models.metrics import measured
from fedsel_app.models.tasks import Classification, MultiLabel, NextToken, Regression, task_of
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.server import find_score
from tests.support.logs import logged
from tests.support.training import CPU


@dataclass
class Labels:
    """The part of a data set that a task reads."""

    task: str
    y_train: np.ndarray
    y_test: np.ndarray | None = None
    classes: int = 3
    names: tuple[str, ...] = ()


def identity(outputs, task):
    """A model whose outputs are its inputs."""
    model = FlatModel(nn.Linear(outputs, outputs, bias=False), CPU, task)
    model.load(np.eye(outputs, dtype=np.float32).ravel(), model.buffers_vector())
    return model


def some(outputs, y):
    """The scores of these outputs, tallied in two parts."""
    x, y = torch.tensor(outputs, dtype=torch.float32), torch.tensor(y)
    return lambda task: evaluate(identity(x.shape[1], task), [(x[:1], y[:1]), (x[1:], y[1:])])


def test_the_weight_of_positives_is_negatives_by_positives():
    """One positive to three negatives, three to one, and labels that are always or never there."""
    y = np.array([[1, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]], np.float32)
    assert task_of(Labels("multi-label", y), CPU).positive_weights.tolist() == pytest.approx([3.0, 1 / 3, 1.0, 1.0])
    tested = Labels("multi-label", y[:0], y)
    assert task_of(tested, CPU).positive_weights.tolist() == pytest.approx([3.0, 1 / 3, 1.0, 1.0])


def test_multi_label_losses_by_hand():
    """At logit 0 a label costs log 2; at log 3 it costs log(4/3) if it is there, log 4 if it is not."""
    task = MultiLabel(torch.tensor([3.0, 0.5]))
    outputs = torch.tensor([[0.0, math.log(3)], [math.log(3), math.log(3)]])
    y = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    first = (3 * math.log(2) + 0.5 * math.log(4 / 3)) / 2
    assert task.losses(outputs, y).tolist() == pytest.approx([first, math.log(4)], rel=1e-6)
    assert float(task.loss(outputs, y)) == pytest.approx((first + math.log(4)) / 2, rel=1e-6)


def test_weighted_sensitivity_and_specificity_by_hand():
    """Label 0: 3 of 4 positives found, 1 of 2 negatives left alone; label 1: 0 of 1 and 5 of 5.

    Weighed 4 : 1, sensitivity is (4 * 3/4 + 1 * 0) / 5 and specificity (4 * 1/2 + 1 * 1) / 5.
    """
    y = np.float32([[1, 0], [1, 0], [1, 1], [1, 0], [0, 0], [0, 0]])
    outputs = [[1, -1], [2, -1], [0.1, -1], [-1, -1], [3, -1], [-2, 0]]  # a logit of 0 is not found
    result = some(outputs, y)(MultiLabel(torch.ones(2)))
    assert result.scores == pytest.approx(
        {"weighted_sensitivity": 0.6, "weighted_specificity": 0.6, "g_mean": 0.6}, rel=1e-12
    )


def test_labels_without_positives_or_negatives_are_skipped():
    """Label 1 has no positive, label 2 no negative: sensitivity is that of 0 and 2, specificity that of 0 alone."""
    y = np.float32([[1, 0, 1], [0, 0, 1]])
    metrics = some([[1, 1, 1], [-1, 1, -1]], y)(MultiLabel(torch.ones(3))).scores
    assert metrics["weighted_sensitivity"] == pytest.approx((1 * 1 + 2 * 0.5) / 3)
    assert metrics["weighted_specificity"] == 1.0


def test_regression_by_hand():
    """Errors 0, 1 and 2 around labels 1, 3 and 5, whose variance is 8/3: R^2 = 1 - (5/3) / (8/3)."""
    task = task_of(Labels("regression", np.float32([0]), np.float32([1, 3, 5])), CPU)
    result = some([[1.0], [4.0], [3.0]], np.float32([1, 3, 5]))(task)
    assert isinstance(task, Regression)
    assert result.loss == pytest.approx(5 / 3)
    assert result.scores == {"r2": pytest.approx(3 / 8)}
    outputs, y = torch.tensor([[1.0], [4.0], [3.0]]), torch.tensor([1.0, 3.0, 5.0])
    assert task.losses(outputs, y).tolist() == [0.0, 1.0, 4.0]
    assert float(task.loss(outputs, y)) == pytest.approx(5 / 3)
    assert float(task.loss(outputs.flatten(), y)) == pytest.approx(5 / 3)


def test_r2_of_labels_that_are_nearly_the_same():
    """Labels 0, 64 and 320 above 10^9 with errors 0, 64 and 0: R^2 = 1 - (64^2 / 3) / (64^2 14 / 3) = 13/14."""
    y = np.float32(1e9) + np.float32([0, 64, 320])
    result = some((y + np.float32([0, 64, 0]))[:, None], y)(task_of(Labels("regression", y, y), CPU))
    assert result.scores == {"r2": pytest.approx(13 / 14)}


def test_a_run_says_that_its_r2_is_undefined():
    for y in ([1, 2], [1, 1]):
        data = Labels("regression", np.float32([0]), np.float32(y))
        model = FlatModel(nn.Linear(1, 1), CPU, task_of(data, CPU))
        with logged() as log:
            assert find_score(resolve({}), model, data) == "r2"
        assert ("R² is undefined" in log()) == (y[0] == y[1])


def test_class_weights_by_hand():
    """Logits (0, log 3) give class 1 the probability 3/4, class 0 1/4."""
    outputs, y = torch.tensor([[0.0, math.log(3)]] * 2), torch.tensor([1, 0])
    plain = [math.log(4 / 3), math.log(4)]
    assert Classification().losses(outputs, y).tolist() == pytest.approx(plain)
    weighted = Classification(torch.tensor([5.0, 2.0]))
    assert weighted.losses(outputs, y).tolist() == pytest.approx([2 * plain[0], 5 * plain[1]])
    assert float(weighted.loss(outputs, y)) == pytest.approx((2 * plain[0] + 5 * plain[1]) / 2)


@pytest.mark.parametrize(
    ("settings", "examples", "expected"),
    [
        ({}, None, None),
        ({"class_weights": "1,2,0.5"}, None, [1, 2, 0.5]),
        # Three classes with 1, 2 and 3 of 6 test examples: 6 / (3 * count), as scikit-learn's "balanced".
        ({"class_weights": "balanced"}, None, [2, 1, 2 / 3]),
        # The client has classes 0 and 2, three examples and one: 4 / (2 * count). Class 1 may be in its test part.
        ({"class_weights": "balanced"}, [0, 1, 3, 4], [2 / 3, 1, 2]),
    ],
)
def test_the_weights_of_classes(settings, examples, expected):
    labels = Labels("classification", np.array([0, 0, 1, 0, 2]), np.array([0, 1, 1, 2, 2, 2]))
    weights = task_of(labels, CPU, TaskConfig(**settings), None if examples is None else np.array(examples)).weights
    assert weights is expected is None or weights.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("classification", {"class_weights": "1,2"}, "must be 3 numbers, one for each class. Got 1,2"),
        ("regression", {"class_weights": "balanced"}, "Leave out 'class-weights'"),
        ("next-token", {"class_weights": "1,2"}, "next-token has no classes of examples"),
    ],
)
def test_weights_that_do_not_fit_the_data_are_refused(task, settings, words):
    with pytest.raises(ConfigError, match=words):
        task_of(Labels(task, np.array([0, 1, 2])), CPU, TaskConfig(**settings))


def test_next_tokens_by_hand():
    """Two sentences of three tokens, one of them padded, over the logits (0, log 3).

    Token 1 has the probability 3/4 and token 0 1/4. Of the five tokens that count, three are 1.
    """
    outputs = torch.tensor([0.0, math.log(3)]).expand(2, 3, 2)
    y = torch.tensor([[1, 1, 0], [1, 0, -100]])
    likely, unlikely = math.log(4 / 3), math.log(4)
    each = [(2 * likely + unlikely) / 3, (likely + unlikely) / 2]
    task = NextToken()
    assert task.losses(outputs, y).tolist() == pytest.approx(each)
    assert float(task.loss(outputs, y)) == pytest.approx(sum(each) / 2)
    tally = task.tally(outputs[:1], y[:1]) + task.tally(outputs[1:], y[1:])
    perplexity = math.exp((3 * likely + 2 * unlikely) / 5)
    assert task.scores(tally, 0.0, 2) == pytest.approx({"accuracy": 0.6, "perplexity": perplexity})


def test_a_sentence_of_padding_costs_nothing():
    outputs, y = torch.zeros(1, 2, 2, requires_grad=True), torch.full((1, 2), -100)
    task = NextToken()
    loss = task.loss(outputs, y)
    loss.backward()
    assert loss.item() == 0.0
    assert outputs.grad is not None
    assert not outputs.grad.any()
    assert np.isnan(list(task.scores(task.tally(outputs.detach(), y), 0.0, 1).values())).all()


def test_several_targets_of_an_example_are_an_output_each(tmp_path, monkeypatch):
    """R² is scikit-learn's, the mean over the targets, also if one of them is far from 0 for its spread."""
    rng = np.random.default_rng(0)
    y = (rng.normal(size=(40, 2)) * [1, 0.5] + [0, 1e6]).astype(np.float32)
    outputs = torch.from_numpy(y + rng.normal(size=y.shape).astype(np.float32) * 0.25)
    dataset = from_arrays({"x_train": y, "y_train": y, "x_test": y, "y_test": y, "task": "regression"}, "x")
    assert dataset.classes == 2
    task, targets = task_of(dataset, torch.device("cpu")), torch.from_numpy(y)
    sums = task.tally(outputs[:25], targets[:25]) + task.tally(outputs[25:], targets[25:])
    assert task.scores(sums, 0.0, 40)["r2"] == pytest.approx(r2_score(y.astype(float), outputs.double().numpy()))
    errors = ((outputs - targets) ** 2).mean(dim=1)
    torch.testing.assert_close(task.losses(outputs, targets), errors)
    mean = abs(outputs - targets).mean().item()
    assert measured(("mae",), "regression", outputs, targets)["mae"] == pytest.approx(mean)
    with pytest.raises(ConfigError, match=r"2 labels in y_train and 1 in y_test"):
        from_arrays({"x_train": y, "y_train": y, "x_test": y, "y_test": y[:, 0], "task": "regression"}, "x")
