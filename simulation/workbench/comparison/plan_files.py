"""Files of a comparison and of a tuning, as they are read: their plans, the failed runs, and the best trials.

comparison.json has the runs of a comparison and their settings, failures.jsonl its failed runs. tuning.json has the
plan of a tuning and, after all trials, the best trial of each method.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NotRequired, TypedDict

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.reading import check_fields, legible, read_object
from fedsel_app.records.schema import Row, RunFailure

PLAN_VERSION = 1
TUNING_FILE = "tuning.json"
TUNING_VERSION = 2
CELL = "settings"
"""Key of the grid for the two kinds of runs: with default and with tuned settings."""
DEFAULT, TUNED = "default", "tuned"


class PlannedRunEntry(TypedDict):
    """Entry of one run."""

    name: str
    folder: str
    cell: NotRequired[dict[str, Value]]


class PlanFile(TypedDict):
    """The entries of the file that are read."""

    version: int
    settings: NotRequired[dict[str, Value]]
    baseline: NotRequired[str]
    runs: list[PlannedRunEntry]


def read_plan(folder: Path) -> dict[str, Any] | None:
    """Content of comparison.json in `folder`; None if there is no such file.

    Raises ConfigError if it is damaged, has another version, or names a run folder outside `folder`.
    """
    path = folder / "comparison.json"
    plan: dict[str, Any] | None = legible(read_object(path, PlanFile, ["runs", "version"]), lines=False)
    if plan is None:
        return None
    if plan["version"] != PLAN_VERSION:
        raise ConfigError(f"{path} is not a comparison that this version of fedsel can read.")
    for run in plan["runs"]:
        inner = PurePosixPath(run["folder"])
        if inner.is_absolute() or ".." in inner.parts:
            raise ConfigError(
                f"The file {path} cannot be read: the folder of the run {run['name']} is outside, in {inner}."
            )
    return plan


def check_failure(row: Row) -> None:
    """Check a row of failures.jsonl."""
    check_fields(row, RunFailure, ("name", "message"))


class BestTrial(TypedDict):
    """Best trial of a method: its number (from 1) and settings, the values of all trials, and number -> failure."""

    trial: int
    settings: dict[str, Value]
    values: list[float | None]
    failures: dict[str, str]


class TuningFile(TypedDict):
    """Content of the file: `over` has the text of each setting's range."""

    version: int
    strategies: list[str]
    trials: int
    tuning_seeds: list[int]
    over: dict[str, str]
    settings: dict[str, Value]
    best: NotRequired[dict[str, BestTrial]]


def read_tuning(folder: Path) -> dict[str, Any] | None:
    """The content of tuning.json in `folder`; None if there is no such file.

    Raises ConfigError if the file is damaged or has another version.
    """
    path = folder / TUNING_FILE
    needed = ["version", "strategies", "trials", "tuning_seeds", "over"]
    tuning: dict[str, Any] | None = legible(read_object(path, TuningFile, needed), lines=False)
    if tuning is not None and tuning["version"] != TUNING_VERSION:
        raise ConfigError(f"{path} is not a tuning that this version of fedsel can read.")
    return tuning


def settings_text(settings: Mapping[str, Value]) -> str:
    """Settings of a trial as text; numbers have four significant digits."""
    return ", ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )
