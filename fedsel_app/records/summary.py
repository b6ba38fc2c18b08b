"""Summary of a finished run: scores, costs to the target and in total, and the clients' selection counts."""

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Value
from fedsel_app.config.run import lower_wins
from fedsel_app.records.schema import ACCURACY, Row, Summary, reaches, schedule_round, score_name

MB = 1e6
STABLE_ROUNDS = 10
"""Number of last evaluations whose mean is the stable score."""
PACKAGES = ("fedsel", "flwr", "torch", "torchvision", "numpy", "scipy", "ray")


def summarize(
    rows: Sequence[Row], config: Mapping[str, Value], selections: NDArray[np.int64], parameters: int
) -> Summary:
    """Summary of the rounds `rows`; `selections` are int64 (K,), `parameters` the entries of the model."""
    score = next((score_name(row) for row in rows if "score" in row), ACCURACY)
    evaluated = [row for row in rows if score in row]
    values = [row[score] for row in evaluated]
    target = float(config["target"])
    reached = next((row for row in evaluated if reaches(row[score], target, score)), None)

    def total(name: str) -> float:
        return float(sum(row.get(name, 0) for row in rows))

    def last(name: str) -> Any:
        return next((row[name] for row in reversed(rows) if name in row), None)

    final_row = next((row for row in reversed(rows) if "loss" in row or score in row), {})
    best = _best_validated(rows)
    validated = [row[f"validation_{score}"] for row in rows if row.get(f"validation_{score}") is not None]
    peak = (min if lower_wins(score) else max)(values, default=math.nan)
    final = final_row.get(score, math.nan)
    return Summary(
        strategy=str(config["strategy"]),
        seed=int(config["seed"]),
        rounds=schedule_round(rows[-1]) if rows else 0,
        peak_accuracy=peak,
        final_accuracy=final,
        stable_accuracy=float(np.mean(values[-STABLE_ROUNDS:])) if values else math.nan,
        stability_drop=final - peak if lower_wins(score) else peak - final,
        target_accuracy=target,
        rounds_to_target=schedule_round(reached) if reached else None,
        time_to_target_s=reached["time_s"] if reached else None,
        uplink_to_target_mb=reached["total_uplink_bytes"] / MB if reached else None,
        uplink_value_to_target_mb=reached["total_uplink_value_bytes"] / MB if reached else None,
        client_updates_to_target=_client_updates_until(reached, rows),
        best_validation_round=schedule_round(best) if best else None,
        client_updates_to_best_validation=_client_updates_until(best, rows),
        best_validation_accuracy=best.get(score) if best else None,
        best_validation_loss=best.get("loss") if best else None,
        time_s=total("round_s"),
        uplink_mb=total("uplink_bytes") / MB,
        uplink_value_mb=total("uplink_value_bytes") / MB,
        downlink_mb=total("downlink_bytes") / MB,
        probe_mb=total("probe_bytes") / MB,
        calibration_mb=total("calibration_bytes") / MB,
        client_updates=int(total("client_updates")),
        failure_count=sum(len(row["failures"]) for row in rows),
        wall_s=total("wall_s"),
        selection_count_min=int(selections.min()),
        selection_count_max=int(selections.max()),
        selection_count_std=float(selections.std()),
        model_parameters=parameters,
        versions={"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        score=None if score == ACCURACY else score,
        final_loss=final_row.get("loss"),
        final_validation_accuracy=final_row.get(f"validation_{score}"),
        stable_validation_accuracy=float(np.mean(validated[-STABLE_ROUNDS:])) if validated else None,
        final_client_accuracy=last(f"client_{score}"),
        final_client_loss=last("client_loss"),
        final_epsilon=last("epsilon"),
        final_metrics=final_row.get("metrics"),
        final_client_metrics=last("client_metrics"),
    )


def stalled(rows: Sequence[Row], patience: int) -> bool:
    """True if none of the last `patience` losses on the validation set is smaller than all before; False for 0."""
    recorded = [row["validation_loss"] for row in rows if "validation_loss" in row]
    losses = [math.inf if loss is None or math.isnan(loss) else loss for loss in recorded]
    return 0 < patience < len(losses) and min(losses[-patience:]) >= min(losses[:-patience])


def _best_validated(rows: Sequence[Row]) -> Row | None:
    """First round with the smallest finite loss on the server's validation set or, without one, on the clients' own
    test parts.
    """
    key = "validation_loss" if any("validation_loss" in row for row in rows) else "client_loss"
    validated = [row for row in rows if row.get(key) is not None and math.isfinite(row[key])]
    return min(validated, key=itemgetter(key), default=None)


def _client_updates_until(reached: Row | None, rows: Sequence[Row]) -> int | None:
    """Client updates up to a round, including those of intermediate rounds."""
    if reached is None:
        return None
    return sum(int(row.get("client_updates", 0)) for row in rows if row["round"] <= reached["round"])


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
