"""Options of a user's Flower app: what the app tells fedsel of its model, its clients and their records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.common import NDArrays, Parameters, Scalar
from numpy.typing import NDArray

from fedsel_app.messages.scalars import Config

EvaluateFn = Callable[[int, NDArrays, dict[str, Scalar]], tuple[float, dict[str, Scalar]] | None]
"""(round, arrays, {}) -> loss and metrics; None: no test in that round."""
RoundConfig = Config | Callable[[int], Config]
"""Config for the user's clients, or a function of the round that returns it."""


@dataclass(frozen=True, kw_only=True)
class AppOptions:
    """Options of a user's Flower app. Each is a keyword of `strategy`."""

    parameters: Parameters | Sequence[NDArray[Any]] | None = None
    """Legacy server: the initial model, as Flower's Parameters or as a list of arrays in the clients' order."""
    evaluate_fn: EvaluateFn | None = None
    """Legacy server: central test of the model; its metric "accuracy" is the score in the records."""
    fit_config: RoundConfig | None = None
    """Legacy server: config for the clients' `fit`."""
    evaluate_config: RoundConfig | None = None
    """Legacy server: config for the clients' `evaluate`."""
    statistics: Sequence[int] | None = None
    """Positions of BatchNorm's running statistics among the arrays; None: found by their names or their order."""
    arrayrecord_key: str = "arrays"
    """Message API: name of the record of arrays in a message."""
    configrecord_key: str = "config"
    """Message API: name of the record of the config in a message."""
    weighted_by_key: str = "num-examples"
    """Message API: metric that is the number of examples."""
    loss_key: str | None = None
    """Message API: metric of an evaluation that is its loss; None: the first of the usual names."""
    score_key: str | None = None
    """Message API: metric of an evaluation that is its score; None: the first of the usual names."""
