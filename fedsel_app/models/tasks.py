"""Tasks: the loss and the scores of each kind of data set.

==============  =================================  ==========================================  ==================
task            labels y                           loss of an example                          score
==============  =================================  ==========================================  ==================
classification  int64 (n,), the class              cross-entropy, in nats                      accuracy
multi-label     float32 (n, L), 0 or 1             mean over the labels of the weighted        G-mean
                                                   binary cross-entropy
regression      float32 (n,)                       squared error                               R^2
==============  =================================  ==========================================  ==================

The score is what records and targets call accuracy: the larger the better, at most 1, and 1 for a perfect model. R^2 is
1 - MSE / Var(y) on the same test examples, so it ranks models as FedCVR-Bolt's MSE does, which is the loss. Where it is
undefined (labels all alike, or without any positive or negative) it is NaN.

The multi-label loss and metrics are those of ISP's ECG task (Sec. 4.3): a positive counts negatives / positives times,
both of all training examples, or in local training of the client's own (`positive-weights`), and once for a label that
has only one kind there; a label is found where its logit is above 0.
The paper leaves open how "weighted" sensitivity and specificity are weighed and how the G-mean joins them: both are
means over the labels weighed by their positives, as scikit-learn's "weighted" averages, and the G-mean is the root of
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
    """The score, NaN where it is undefined, and further metrics by name, those that are defined."""

    score: float
    metrics: Mapping[str, float] = field(default_factory=dict)


class Task(Protocol):
    """Task of a data set: its loss, and sums over the examples from which its scores follow."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a mini-batch, a scalar."""

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Loss of each example, float32 (n,)."""

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Sums over the examples, which add up over mini-batches."""

    def scores(self, tally: Counts, loss: float, examples: int) -> Scores:
        """Scores from the sums of `tally` and the mean loss over all `examples`."""


class Classification:
    """Classification: one class an example, one output a class."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return functional.cross_entropy(outputs, y)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of each example."""
        return functional.cross_entropy(outputs, y, reduction="none")

    def tally(self, outputs: Tensor, y: Tensor) -> Counts:
        """Examples whose largest output is their class, (1,)."""
        return np.array([float((outputs.argmax(dim=1) == y).sum())])

    def scores(self, tally: Counts, loss: float, examples: int) -> Scores:
        """Accuracy; no further metrics."""
        return Scores(float(tally[0]) / examples)


CLASSIFICATION = Classification()


class MultiLabel:
    """Multi-label classification: any of L labels an example, one logit a label.

    Parameters
    ----------
    positive_weights : float32 tensor of shape (L,)
        Weight of a positive, on the device where the loss is computed.
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
        """G-mean; weighted sensitivity and specificity, and the G-mean, among the metrics."""
        true_positives, false_negatives, true_negatives, false_positives = tally
        positives, negatives = true_positives + false_negatives, true_negatives + false_positives
        sensitivity = _weighted_rate(true_positives, positives, positives)
        specificity = _weighted_rate(true_negatives, negatives, positives)
        g_mean = math.sqrt(sensitivity * specificity)
        metrics = {"weighted_sensitivity": sensitivity, "weighted_specificity": specificity, "g_mean": g_mean}
        return Scores(g_mean, {name: value for name, value in metrics.items() if math.isfinite(value)})


class Regression:
    """Regression: one number an example, one output."""

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
        """R^2, under its name among the metrics too."""
        total, squares = tally.tolist()
        variance = squares / examples - (total / examples) ** 2
        # What is left of equal labels is rounding.
        r2 = 1.0 - loss / variance if variance > 1e-12 * squares / examples else math.nan
        return Scores(r2, {"r2": r2} if math.isfinite(r2) else {})


def task_of(dataset: Dataset, device: torch.device, examples: NDArray[np.int64] | None = None) -> Task:
    """The task of a data set; its loss is computed on `device`.

    The weights of the positives are those of all training examples, or of `examples` alone, positions among them.
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
    """Mean over the labels that have cases of hits / cases, weighed; NaN where nothing weighs."""
    there = cases > 0
    total = weights[there].sum()
    return float((weights[there] * hits[there] / cases[there]).sum() / total) if total > 0 else math.nan
