"""A finished run in one line of numbers."""

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import Value

MB = 1e6
STABLE_ROUNDS = 10
LAST = ("loss", "client_accuracy", "client_loss", "epsilon")
PACKAGES = ("fedsel", "flwr", "torch", "torchvision", "numpy", "scipy", "ray")


def summarize(
    rows: Sequence[Mapping[str, Any]], config: Mapping[str, Value], selections: NDArray[np.int64], parameters: int
) -> dict[str, Any]:
    """One run in a line of numbers. Accuracies in [0, 1], MB of 10^6 bytes, null where the target was not reached."""
    evaluated = [row for row in rows if "accuracy" in row]
    accuracies = [row["accuracy"] for row in evaluated]
    target = float(config["target"])
    reached = next((row for row in evaluated if row["accuracy"] >= target), None)

    def total(key: str) -> float:
        return float(sum(row.get(key, 0) for row in rows))

    peak = max(accuracies, default=math.nan)
    final = accuracies[-1] if accuracies else math.nan
    return {
        "strategy": config["strategy"],
        "seed": config["seed"],
        "rounds": len(rows),
        "peak_accuracy": peak,
        "final_accuracy": final,
        "stable_accuracy": float(np.mean(accuracies[-STABLE_ROUNDS:])) if accuracies else math.nan,
        "stability_drop": peak - final,
        "target_accuracy": target,
        "rounds_to_target": reached["round"] if reached else None,
        "time_to_target_s": reached["time_s"] if reached else None,
        "uplink_value_to_target_mb": reached["total_uplink_value_bytes"] / MB if reached else None,
        "uplink_to_target_mb": reached["total_uplink_bytes"] / MB if reached else None,
        "time_s": total("round_s"),
        "uplink_value_mb": total("uplink_value_bytes") / MB,
        "uplink_mb": total("uplink_bytes") / MB,
        "downlink_mb": total("downlink_bytes") / MB,
        "probe_mb": total("probe_bytes") / MB,
        "calibration_mb": total("calibration_bytes") / MB,
        "exchanges": int(total("exchanges")),
        "failures": sum(len(row["failures"]) for row in rows),
        "wall_s": total("wall_s"),
        "selection_count_min": int(selections.min()),
        "selection_count_max": int(selections.max()),
        "selection_count_std": float(selections.std()),
        "model_parameters": parameters,
        **_last_of(rows),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
    }


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _last_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The newest loss, the clients' own mean accuracy and loss, and the task's other metrics, where there are any."""
    last: dict[str, Any] = {}
    for row in rows:
        last |= {f"final_{name}": row[name] for name in LAST if name in row}
        last |= {f"final_{name}": value for name, value in row.get("metrics", {}).items()}
    return last
