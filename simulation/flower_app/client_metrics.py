"""Metrics of users' clients: the numbers among them, and their means over the clients of a round."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from flwr.app import MetricRecord
from numpy.typing import NDArray

from fedsel_app.messages.reported_values import one_line

LOGGER = logging.getLogger("fedsel")


def numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The numeric values among a user's metrics, also those of NumPy and torch."""
    plain = {name: value.item() if _is_single(value) else value for name, value in metrics.items()}
    return {name: float(value) for name, value in plain.items() if isinstance(value, int | float)}


def _is_single(value: Any) -> bool:
    """True for one of NumPy's numbers, and for an array or a tensor of one number."""
    return hasattr(value, "item") and math.prod(getattr(value, "shape", (0,))) == 1


def mean_metrics(metrics: Mapping[int, Mapping[str, float]], examples: NDArray[Any], server_round: int) -> MetricRecord:
    """Mean of each metric over the clients that report it, weighted by their examples.

    A value that is not finite is left out and logged.

    Parameters
    ----------
    metrics : partition id -> numbers that the client reports
    examples : numbers of examples of all clients, (K,), at least 1 for each of these clients
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for client, reported in metrics.items():
        odd = [name for name, value in reported.items() if not math.isfinite(value)]
        if odd:
            LOGGER.warning(
                "Round %d: metrics of client %d are left out, because they are not finite: %s",
                *(server_round, client, one_line(", ".join(odd))),
            )
        for name in reported.keys() - odd:
            found.setdefault(name, []).append((float(examples[client]), reported[name]))
    means = MetricRecord()
    for name, values in sorted(found.items()):
        total = sum(weight for weight, _ in values)
        means[name] = sum(weight / total * value for weight, value in values)
    return means
