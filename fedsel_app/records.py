"""The run folder: config.json, rounds.jsonl, clients.jsonl, summary.json, model.npz."""

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsel_app.config import ConfigError, Value

MB = 1e6
STABLE_ROUNDS = 10
PACKAGES = ("fedsel", "flwr", "torch", "torchvision", "numpy", "scipy", "ray")


class Counts(Protocol):
    """Where the number of times each client was selected is read."""

    selections: NDArray[np.int64]


class RunFolder:
    """Writes a run down as it goes; everything that was written stays whole, whatever happens next.

    Parameters
    ----------
    path : created if absent; refused if it already holds a run
    config : the resolved settings
    on_round : called with every finished round's row
    """

    def __init__(
        self, path: Path, config: Mapping[str, Value], on_round: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._config = config
        self._on_round = on_round
        try:
            refuse_used(path)
            path.mkdir(parents=True, exist_ok=True)
            self._write_json("config.json", dict(config))
            self._rounds = (path / "rounds.jsonl").open("a", encoding="utf-8")
            self._clients = (path / "clients.jsonl").open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"The run folder {path} cannot be written: {error}. Choose another 'out'.") from error

    def client(self, row: Mapping[str, Any]) -> None:
        """Append what is known of one client to clients.jsonl."""
        _append(self._clients, row)

    def round(self, row: dict[str, Any]) -> None:
        """Append a finished round to rounds.jsonl, with the totals up to it."""
        before = self.rows[-1] if self.rows else {}
        for total, part in (
            ("time_s", "round_s"),
            ("uplink_total_bytes", "uplink_bytes"),
            ("paper_uplink_total_bytes", "paper_uplink_bytes"),
        ):
            row[total] = before.get(total, 0) + row.get(part, 0)
        self.rows.append(row)
        _append(self._rounds, row)
        if self._on_round:
            self._on_round(row)

    def finish(self, parameters: NDArray[np.float32], buffers: NDArray[np.float32], roster: Counts) -> None:
        """Write the final model and summary.json."""
        with _replacing(self.path / "model.npz") as file:
            np.savez(file, parameters=parameters, buffers=buffers)
        self._write_json("summary.json", summarize(self.rows, self._config, roster.selections, parameters.size))
        self._rounds.close()
        self._clients.close()

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        with _replacing(self.path / name) as file:
            file.write((json.dumps(_plain(content), indent=2) + "\n").encode())


def refuse_used(path: Path) -> None:
    """Raise ConfigError if the folder at `path` already holds a run."""
    if (path / "rounds.jsonl").exists():
        raise ConfigError(f"The run folder {path} already holds a run; choose another 'out' or remove it.")


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
        "paper_traffic_to_target_mb": reached["paper_uplink_total_bytes"] / MB if reached else None,
        "wire_uplink_to_target_mb": reached["uplink_total_bytes"] / MB if reached else None,
        "time_s": total("round_s"),
        "paper_traffic_mb": total("paper_uplink_bytes") / MB,
        "wire_uplink_mb": total("uplink_bytes") / MB,
        "wire_downlink_mb": total("downlink_bytes") / MB,
        "probe_mb": total("probe_bytes") / MB,
        "calibration_mb": total("calibration_bytes") / MB,
        "exchanges": int(total("exchanges")),
        "failures": sum(len(row["failures"]) for row in rows),
        "wall_s": total("wall_s"),
        "selection_count_min": int(selections.min()),
        "selection_count_max": int(selections.max()),
        "selection_count_std": float(selections.std()),
        "model_parameters": parameters,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
    }


def describe(row: dict[str, Any]) -> str:
    """One line about a round: accuracy, simulated seconds, MB sent, failures."""
    accuracy = f"accuracy {row['accuracy']:.4f}, " if "accuracy" in row else ""
    failures = f", {len(row['failures'])} failed" if row["failures"] else ""
    return f"{accuracy}{row['time_s']:.1f} s, {row['uplink_total_bytes'] / 1e6:.3f} MB sent{failures}"


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's rounds.jsonl.

    Raises
    ------
    ConfigError
        If the folder holds no run.
    """
    try:
        lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{folder} holds no run: {error}.") from error
    return [json.loads(line) for line in lines]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _append(file: Any, row: Mapping[str, Any]) -> None:
    """One line, flushed: after a crash every earlier line is whole."""
    file.write(json.dumps(_plain(row)) + "\n")
    file.flush()


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity; they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


class _replacing:
    """Open a file to write that appears, whole, only when it is closed without an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".part")

    def __enter__(self) -> Any:
        self._file = self._temporary.open("wb")
        return self._file

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._file.close()
        if kind is None:
            os.replace(self._temporary, self._path)
        else:
            self._temporary.unlink(missing_ok=True)
