"""Central test of a user's Flower app: its evaluate_fn, as Flower's strategies call it, and the score for records."""

import math
from collections.abc import Callable

from flwr.common import NDArrays, Scalar
from numpy import float32
from numpy.typing import NDArray

from strategies.run_context import Evaluation

EvaluateFn = Callable[[int, NDArrays, dict[str, Scalar]], tuple[float, dict[str, Scalar]] | None]
"""(round, arrays, {}) -> loss and metrics; None: no test in that round."""
SCORE = "accuracy"
"""Metric that is the score of the records."""


class CentralTest:
    """Central test by the user's function; None: there is none."""

    def __init__(self, function: EvaluateFn | None) -> None:
        self._function = function
        self._last = Evaluation(math.nan, math.nan)

    def evaluate(self, number: int, arrays: NDArrays) -> tuple[float, dict[str, Scalar]] | None:
        """Loss and metrics of the model after round `number`, as the user's function returns them."""
        result = None if self._function is None else self._function(number, arrays, {})
        if result is None:
            return None
        loss, metrics = float(result[0]), dict(result[1])
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
        self._last = Evaluation(loss, numbers.pop(SCORE, math.nan), numbers)
        return loss, metrics

    def last(self, parameters: NDArray[float32], buffers: NDArray[float32]) -> Evaluation:
        """The result of the last `evaluate`, which was of this model."""
        return self._last
