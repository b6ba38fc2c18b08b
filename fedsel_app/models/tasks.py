"""Tasks: the loss and the scores of each kind of data set.

==============  =================================  ==========================================  ==================
task            labels y                           loss of an example                          score
==============  =================================  ==========================================  ==================
classification  int64 (n,), the class              cross-entropy, in nats                      accuracy
multi-label     float32 (n, L), 0 or 1             mean over the labels of the weighted        G-mean
                                                   binary cross-entropy
regression      float32 (n,)                       squared error                               R^2
==============  =================================  ==========================================  ==================

Records and the setting `target` call the score accuracy. A larger score is better, and a perfect model has score 1. R^2
is 1 - MSE / Var(y) on the test examples, so it ranks models as FedCVR-Bolt's MSE does; the loss is this MSE. A score is
NaN if it is undefined: R^2 if all targets are equal, the G-mean if there are no positives or no negatives.

The multi-label loss and metrics are those of ISP's ECG task (Sec. 4.3). A positive of a label has the weight
negatives / positives, counted over all training examples, or in local training over the client's own
(`positive-weights`). If one of these counts is 0, the weight is 1. A label is predicted if its logit is above 0.
The paper does not define its "weighted" sensitivity and specificity, nor the G-mean. Here both are means over the
labels, weighted by the labels' positives, like scikit-learn's "weighted" averages. The G-mean is the square root of
their product.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedsel_app.data.dataset import Dataset

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """The score, NaN if it is undefined, and the other defined metrics by name."""

    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class Task(Protocol):
    """Task of a data set: its loss, and its scores, which are computed from sums over the examples."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a mini-batch, a scalar."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Loss of each example, float32 (n,)."""

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Sums over the examples, which add up over mini-batches."""

    def scores(self, tally: Counts, loss: float, examples: int) -> Scores:
        """Scores from the sums of `tally` and the mean loss over all `examples`."""


class Classification:
    """Classification: one class for each example, one output for each class."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return functional.cross_entropy(outputs, y)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of each example."""
        return functional.cross_entropy(outputs, y, reduction="none")

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Number of examples whose largest output is their class, (1,)."""
        return np.array([float((outputs.argmax(dim=1) == y).sum())])

    def scores(self, tally: Counts, loss: float, examples: int) -> Scores:
        """The score is the accuracy; there are no other metrics."""
        return Scores(float(tally[0]) / examples)


CLASSIFICATION = Classification()


class MultiLabel:
    """Multi-label classification: any of L labels for each example, one logit for each label.

    Parameters
    ----------
    positive_weights : float32 tensor of shape (L,)
        Weight of the positives of each label, on the device where the loss is computed.
    """

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
        found, there = outputs > 0, y > 0.5
        kinds = torch.stack([found & there, ~found & there, ~found & ~there, found & ~there])
        return kinds.sum(dim=1).cpu().numpy().astype(np.float64)

    def scores(self, tally: Counts, loss: float, examples: int) -> Scores:
        """The score is the G-mean; the metrics are the weighted sensitivity and specificity and the G-mean."""
        true_positives, false_negatives, true_negatives, false_positives = tally
        positives, negatives = true_positives + false_negatives, true_negatives + false_positives
        sensitivity = _weighted_rate(true_positives, positives, positives)
        specificity = _weighted_rate(true_negatives, negatives, positives)
        g_mean = math.sqrt(sensitivity * specificity)
        metrics = {"weighted_sensitivity": sensitivity, "weighted_specificity": specificity, "g_mean": g_mean}
        return Scores(g_mean, {name: value for name, value in metrics.items() if math.isfinite(value)})


class Regression:
    """Regression: one number for each example, one output."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean squared error."""
        return functional.mse_loss(outputs.flatten(), y)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Squared error of each example."""
        return functional.mse_loss(outputs.flatten(), y, reduction="none")

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Sum of the labels and of their squares, (2,)."""
        labels = y.cpu().double()
        return np.array([float(labels.sum()), float(labels.square().sum())])

    def scores(self, tally: Counts, loss: float, examples: int) -> Scores:
        """The score is R^2, which is also among the metrics."""
        total, squares = tally.tolist()
        variance = squares / examples - (total / examples) ** 2
        # A variance below this bound is a rounding error of equal labels.
        r2 = 1.0 - loss / variance if variance > 1e-12 * squares / examples else math.nan
        return Scores(r2, {"r2": r2} if math.isfinite(r2) else {})


def task_of(dataset: Dataset, device: torch.device, examples: NDArray[np.int64] | None = None) -> Task:
    """The task of a data set; its loss is computed on `device`.

    The weights of the positives come from all training examples, or only from those at the positions `examples`.
    """
    if dataset.task == "classification":
        return CLASSIFICATION
    if dataset.task == "regression":
        return Regression()
    y = dataset.y_train if examples is None else dataset.y_train[examples]
    positives = y.sum(axis=0, dtype=np.float64)
    negatives = len(y) - positives
    both = (positives > 0) & (negatives > 0)
    weights = np.divide(negatives, positives, out=np.ones_like(positives), where=both)
    return MultiLabel(torch.tensor(weights, dtype=torch.float32, device=device))


def _weighted_rate(hits: Counts, cases: Counts, weights: Counts) -> float:
    """Weighted mean of hits / cases over the labels with cases; NaN if their weights sum to 0."""
    there = cases > 0
    total = weights[there].sum()
    return float((weights[there] * hits[there] / cases[there]).sum() / total) if total > 0 else math.nan
