"""Trial of a user's task on two examples, before the first round."""

import math
from collections.abc import Mapping

import numpy as np
from torch import Tensor

from fedsel_app.config import plugins
from fedsel_app.config.settings import plain_value
from fedsel_app.data.inputs import Inputs
from fedsel_app.models.flat_model import FlatModel, evaluating
from fedsel_app.models.tasks import refusal


def try_task(path: str, model: FlatModel, x: Inputs, y: Tensor) -> None:
    """Try the model's own task `path` on two examples.

    Raises ConfigError if one of its functions raises, or returns something else than `Task` says.
    """
    task = model.task
    with evaluating(model):
        outputs = model.outputs(x)
    with plugins.user_code(path.partition(":")[0], f"The class '{path}' ('task')"):
        trained = outputs.clone().requires_grad_()
        loss, losses = task.loss(trained, y), task.losses(outputs, y)
        if not isinstance(loss, Tensor) or loss.shape != () or not loss.requires_grad:
            raise refusal(path, f"must return from `loss` a scalar with a gradient for the outputs. Got {loss!r}")
        if not isinstance(losses, Tensor) or losses.shape != (len(y),):
            raise refusal(path, f"must return from `losses` the loss of each example, {(len(y),)}. Got {losses!r}")
        given, mean = float(loss.detach()), float(losses.double().mean())
        if not (math.isfinite(mean) and math.isclose(given, mean, rel_tol=1e-3, abs_tol=1e-6)):
            raise refusal(
                path, f"must return from `loss` the mean of `losses`. For two examples it is {given:g}, not {mean:g}"
            )
        both, *each = (task.tally(outputs[part], y[part]) for part in (slice(2), slice(1), slice(1, 2)))
        if not isinstance(both, np.ndarray) or not np.allclose(both, np.sum(each, axis=0), equal_nan=True):
            raise refusal(path, "must return from `tally` an array of sums, which is the sum of those of two parts")
        scores = task.scores(both, mean, len(y))
        if not isinstance(scores, Mapping) or not all(
            isinstance(name, str) and name.isidentifier() and isinstance(plain_value(value), int | float)
            for name, value in scores.items()
        ):
            raise refusal(path, f"must return from `scores` a dict of numbers by name. Got {scores!r}")
