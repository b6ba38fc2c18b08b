"""File tuning.json in the folder of a tuning: its plan and, after all trials, the best trial of each method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.reading import legible, read_object

NAME = "tuning.json"
VERSION = 2
CELL = "settings"
"""Key of the grid for the two kinds of runs: with default and with tuned settings."""
DEFAULT, TUNED = "default", "tuned"


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
    path = folder / NAME
    needed = ["version", "strategies", "trials", "tuning_seeds", "over"]
    tuning: dict[str, Any] | None = legible(read_object(path, TuningFile, needed), lines=False)
    if tuning is not None and tuning["version"] != VERSION:
        raise ConfigError(f"{path} is not a tuning that this version of fedsel can read.")
    return tuning


def settings_text(settings: Mapping[str, Value]) -> str:
    """Settings of a trial as text; numbers have four significant digits."""
    return ", ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )
