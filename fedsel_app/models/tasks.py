"""Tasks: the loss and the scores of each kind of data set, and users' own, which `fedsel_app.models.building` tries.

==============  ================================  ==========================================  ==========
task            labels y                          loss of an example                          score
==============  ================================  ==========================================  ==========
classification  int64 (n,), the class             cross-entropy, in nats                      accuracy
multi-label     float32 (n, L), 0 or 1            mean over the labels of the weighted        g_mean
                                                  binary cross-entropy
regression      float32 (n,) or (n, L)            squared error                               r2
next-token      int64 (n, T), the next token      mean cross-entropy of its tokens, in nats   accuracy
                of each, or -100 for padding
==============  ================================  ==========================================  ==========

A perfect model has the score 1. R^2 is 1 - MSE / Var(y) on the test examples, so it ranks models as FedCVR-Bolt's MSE
does; the loss is this MSE. The accuracy of next tokens is the share of the most probable ones that are right; their
perplexity is the exponential of the mean cross-entropy of all tokens. Tokens of -100 count nowhere. A score is left out
where it is undefined: R^2 if all targets are equal, the G-mean if there are no positives or no negatives.

In classification, class c may have a weight w_c, by which the loss of an example is multiplied; that of a mini-batch is
the mean.

The multi-label loss and metrics are those of ISP's ECG task (Sec. 4.3). A positive of a label has the weight
negatives / positives, counted over all training examples, or in local training over the client's own
(`positive-weights`). If one of these counts is 0, the weight is 1. A label is predicted if its logit is above 0.
The paper does not define its "weighted" sensitivity and specificity, nor the G-mean. Here both are means over the
labels, weighted by the labels' positives, like scikit-learn's "weighted" averages. The G-mean is the square root of
their product.
"""

import math
from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedsel_app.config import ConfigError, TaskConfig, plugins
from fedsel_app.data.arrays import IGNORED
from fedsel_app.data.dataset import Dataset

Counts = NDArray[np.float64]


class Task(Protocol):
    """Task of a data set: its loss, and its scores, which are computed from sums over the examples.

    Attributes
    ----------
    score : name of the score, by which models are compared
    """

    score: str

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a mini-batch, a scalar."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Loss of each example, float32 (n,)."""

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Sums over the examples, which add up over mini-batches."""

    def scores(self, tally: Counts, loss: float, examples: int) -> Mapping[str, float]:
        """Scores by name, from the sums of `tally` and the mean loss over all `examples`; NaN if undefined."""


class Classification:
    """Classification: one class for each example, one output for each class.

    Parameters
    ----------
    weights : float32 tensor of shape (C,), the weight of each class, on the device of the loss; None: 1
    """

    score = "accuracy"

    def __init__(self, weights: Tensor | None = None) -> None:
        self.weights = weights

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean of the losses."""
        return functional.cross_entropy(outputs, y) if self.weights is None else self.losses(outputs, y).mean()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of each example, with the weight of its class."""
        losses = functional.cross_entropy(outputs, y, reduction="none")
        return losses if self.weights is None else losses * self.weights[y]

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Number of examples whose largest output is their class, (1,)."""
        return np.array([float((outputs.argmax(dim=1) == y).sum())])

    def scores(self, tally: Counts, loss: float, examples: int) -> Mapping[str, float]:
        """Accuracy."""
        return {"accuracy": float(tally[0]) / examples}


CLASSIFICATION = Classification()


class NextToken:
    """Next-token prediction: whole numbers (n, T), one output for each token of the vocabulary at each place."""

    score = "accuracy"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean of the losses."""
        return self.losses(outputs, y).mean()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy of each example over its tokens."""
        return self._each(outputs, y).sum(dim=1) / (y != IGNORED).sum(dim=1).clamp_min(1)

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Number of tokens that are predicted, number of tokens, and sum of their cross-entropies, (3,)."""
        hits, cross_entropy = outputs.argmax(dim=-1) == y, self._each(outputs, y).double()
        return np.array([float(hits.sum()), float((y != IGNORED).sum()), float(cross_entropy.sum())])

    def scores(self, tally: Counts, loss: float, examples: int) -> Mapping[str, float]:
        """Accuracy and perplexity."""
        hits, tokens, cross_entropy = tally.tolist()
        tokens = tokens or math.nan
        return {"accuracy": hits / tokens, "perplexity": float(np.exp(cross_entropy / tokens))}

    @staticmethod
    def _each(outputs: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.transpose(1, 2), y, ignore_index=IGNORED, reduction="none")


class MultiLabel:
    """Multi-label classification: any of L labels for each example, one logit for each label.

    Parameters
    ----------
    positive_weights : weight of the positives of each label, float32 (L,), on the device where the loss is computed
    """

    score = "g_mean"

    def __init__(self, positive_weights: Tensor) -> None:
        self.positive_weights = positive_weights

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean weighted binary cross-entropy over examples and labels."""
        return functional.binary_cross_entropy_with_logits(outputs, y, pos_weight=self.positive_weights)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean weighted binary cross-entropy of each example over its labels."""
        each = functional.binary_cross_entropy_with_logits(
            outputs, y, pos_weight=self.positive_weights, reduction="none"
        )
        return each.mean(dim=1)

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """True positives, false negatives, true negatives and false positives of each label, (4, L)."""
        predicted, there = outputs > 0, y > 0.5
        kinds = torch.stack([predicted & there, ~predicted & there, ~predicted & ~there, predicted & ~there])
        return kinds.sum(dim=1).cpu().numpy().astype(np.float64)

    def scores(self, tally: Counts, loss: float, examples: int) -> Mapping[str, float]:
        """Weighted sensitivity, weighted specificity, and their G-mean."""
        true_positives, false_negatives, true_negatives, false_positives = tally
        positives, negatives = true_positives + false_negatives, true_negatives + false_positives
        sensitivity = _weighted_rate(true_positives, positives, positives)
        specificity = _weighted_rate(true_negatives, negatives, positives)
        g_mean = math.sqrt(sensitivity * specificity)
        return {"weighted_sensitivity": sensitivity, "weighted_specificity": specificity, "g_mean": g_mean}


class Regression:
    """Regression: a number for each example, or several, and as many outputs.

    Attributes
    ----------
    origin : subtracted from the labels before they are summed, which changes no variance
    """

    score = "r2"
    origin: float | NDArray[np.float64] = 0.0

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean squared error."""
        return functional.mse_loss(outputs.reshape(y.shape), y)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean squared error of each example."""
        return functional.mse_loss(outputs.reshape(y.shape), y, reduction="none").reshape(len(y), -1).mean(dim=1)

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Sums of the labels from the origin, of their squares, and of the squared errors, (3,) or (3, L)."""
        labels = y.cpu().double() - torch.as_tensor(self.origin)
        errors = functional.mse_loss(outputs.reshape(y.shape), y, reduction="none").cpu().double()
        return np.stack([each.sum(dim=0).numpy() for each in (labels, labels.square(), errors)])

    def scores(self, tally: Counts, loss: float, examples: int) -> Mapping[str, float]:
        """R^2, the mean over the numbers of an example."""
        total, squares, errors = tally / examples
        variance = squares - total**2
        # A variance below this bound is a rounding error of equal labels.
        varies = variance > 1e-12 * squares
        return {"r2": float(np.mean(1.0 - errors / variance)) if varies.all() else math.nan}


def task_of(
    dataset: Dataset,
    device: torch.device,
    settings: TaskConfig = TaskConfig(),  # noqa: B008 - it is frozen
    examples: NDArray[np.int64] | None = None,
) -> Task:
    """The task of a data set; its loss is computed on `device`.

    The labels at the training positions `examples` are counted for the weights of classes and of positives; without
    them, the test labels for the classes, and for the positives all training labels, or the test labels if there are
    none.

    Raises ConfigError if the settings do not fit the data set, or name a class of a user that cannot be built.
    """
    if settings.task:
        task = own_task(settings.task, dataset.classes)
        return _with_origin(task, dataset) if isinstance(task, Regression) else task
    if dataset.task == "classification":
        return Classification(_class_weights(dataset, device, settings, examples))
    if settings.class_weights:
        raise ConfigError(
            f"Leave out 'class-weights', or choose 'data' for classification: {dataset.task} has no classes of "
            "examples."
        )
    if dataset.task == "regression":
        return _with_origin(Regression(), dataset)
    if dataset.task == "next-token":
        return NextToken()
    y = (dataset.y_train if len(dataset.y_train) else dataset.y_test) if examples is None else dataset.y_train[examples]
    positives = y.sum(axis=0, dtype=np.float64)
    negatives = len(y) - positives
    both = (positives > 0) & (negatives > 0)
    weights = np.divide(negatives, positives, out=np.ones_like(positives), where=both)
    return MultiLabel(torch.tensor(weights, dtype=torch.float32, device=device))


def own_task(path: str, outputs: int) -> Task:
    """Build the task `path` of a user ("package.module:Class"), for a model with this number of outputs.

    Raises ConfigError if the class cannot be imported or built, or lacks a function or the name of its score.
    """
    task = plugins.call(path, "task", outputs)
    for name in ("loss", "losses", "tally", "scores"):
        if not callable(getattr(task, name, None)):
            raise refusal(path, f"needs the function {name}")
    if not isinstance(getattr(task, "score", None), str) or not task.score.isidentifier():
        raise refusal(path, 'needs the name of its score, such as score = "accuracy": letters, digits and _')
    return cast(Task, task)


def refusal(path: str, reason: str) -> ConfigError:
    """Error of the user's class `path` for this reason."""
    return ConfigError(f"The class '{path}' ('task') {reason}.")


def _with_origin(task: Regression, dataset: Dataset) -> Regression:
    """The task with its origin: amid labels whose variance would be lost in the rounding of their squares, else 0."""
    labels = (dataset.y_test if len(dataset.y_test) else dataset.y_train).astype(np.float64)
    if (labels.var(axis=0) <= 1e-6 * np.square(labels).mean(axis=0)).any():
        task.origin = np.median(labels, axis=0)
    return task


def _class_weights(
    dataset: Dataset, device: torch.device, settings: TaskConfig, examples: NDArray[np.int64] | None
) -> Tensor | None:
    weights: list[float] = settings.listed_weights
    if settings.balanced:
        whole = dataset.y_test if len(dataset.y_test) else dataset.y_train
        y = whole if examples is None else dataset.y_train[examples]
        counts = np.bincount(y, minlength=dataset.classes)
        there = counts > 0
        weights = np.divide(len(y), there.sum() * counts, out=np.ones(len(counts)), where=there).tolist()
    if weights and len(weights) != dataset.classes:
        raise ConfigError(
            f"The 'class-weights' must be {dataset.classes} numbers, one for each class. Got {settings.class_weights}."
        )
    return torch.tensor(weights, dtype=torch.float32, device=device) if weights else None


def _weighted_rate(hits: Counts, cases: Counts, weights: Counts) -> float:
    """Weighted mean of hits / cases over the labels with cases; NaN if their weights sum to 0."""
    there = cases > 0
    total = weights[there].sum()
    return float((weights[there] * hits[there] / cases[there]).sum() / total) if total > 0 else math.nan
