"""Metrics of torchmetrics, by the names of `fedsel_app.config.run.METRICS`, from all outputs of a test set.

Importing torchmetrics takes seconds, so this module is imported only where a metric is asked for.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torchmetrics.functional
from numpy.typing import NDArray
from torch import Tensor

from fedsel_app.config.run import EACH, METRICS, Metric

CURVES = ("auroc", "average_precision")
"""Functions of probabilities; all others are of predicted classes or labels."""


def measured(names: tuple[str, ...], task: str, outputs: Tensor, y: Tensor) -> Mapping[str, float]:
    """Values by name in records. A class or label without an example has none; AUROC and the average precision are
    means over those that have a value.

    Parameters
    ----------
    names : names of `METRICS` for the task
    task : one of `fedsel_app.config.data.TASKS`
    outputs, y : of all examples, on the CPU; see `fedsel_app.models.tasks`
    """
    scores: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics warns of a class without examples
        for name in names:
            metric, key = METRICS[name], name.replace("-", "_")
            if metric.average == EACH:
                values = _each(metric.function, task, outputs, y)
                scores |= {f"{key.removesuffix(EACH)}{label}": float(value) for label, value in enumerate(values)}
            else:
                scores[key] = _value(metric, task, outputs, y)
    return scores


def _value(metric: Metric, task: str, outputs: Tensor, y: Tensor) -> float:
    function = getattr(torchmetrics.functional, metric.function)
    if task == "regression":
        options: dict[str, Any] = {"squared": False} if metric.function == "mean_squared_error" else {}
        return float(function(outputs.double().flatten(), y.double().flatten(), **options))
    if metric.function in CURVES or metric.average == "present":
        values, counts = _each(metric.function, task, outputs, y), _support(task, outputs, y)
        defined = ~np.isnan(values)
        weights = counts[defined] if metric.average == "weighted" else None
        return float(np.average(values[defined], weights=weights)) if defined.any() else np.nan
    average = {"average": metric.average} if metric.average else {}
    return float(function(_predicted(task, outputs), y.long(), **_sizes(task, outputs), **average))


def _each(function: str, task: str, outputs: Tensor, y: Tensor) -> NDArray[np.float64]:
    """Value of each class or label, float64 (L,); NaN without an example, and of AUROC also without any other."""
    squashed = outputs.double().sigmoid() if task == "multi-label" else outputs.double().softmax(dim=1)
    given = squashed if function in CURVES else _predicted(task, outputs)
    call = getattr(torchmetrics.functional, function)
    values = call(given, y.long(), **_sizes(task, outputs), average="none").double().numpy()
    support = _support(task, outputs, y)
    return np.where((support == 0) | ((support == len(y)) & (function == "auroc")), np.nan, values)


def _support(task: str, outputs: Tensor, y: Tensor) -> NDArray[np.int64]:
    """Number of examples of each class or label, int64 (L,)."""
    counts: NDArray[np.int64] = (
        y.long().sum(dim=0) if task == "multi-label" else torch.bincount(y, minlength=outputs.shape[1])
    ).numpy()
    return counts


def _predicted(task: str, outputs: Tensor) -> Tensor:
    return (outputs > 0).long() if task == "multi-label" else outputs.argmax(dim=1)


def _sizes(task: str, outputs: Tensor) -> dict[str, Any]:
    kind, size = ("multilabel", "num_labels") if task == "multi-label" else ("multiclass", "num_classes")
    return {"task": kind, size: outputs.shape[1]}
