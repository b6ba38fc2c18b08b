"""File tuning.json in the folder of a tuning: its plan and, after all trials, the best trial of each method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.run import score_title
from fedsel_app.records.reading import read_object
from fedsel_app.records.schema import ACCURACY
from simulation.workbench.comparison.measures import (
    CLIENT_UPDATES,
    ROUNDS,
    SECONDS,
    UPLINK_MB,
    EvaluatedMetric,
    Measure,
)

NAME = "tuning.json"
VERSION = 1
CELL = "settings"
"""Key of the grid for the two kinds of runs: with default and with tuned settings."""
DEFAULT, TUNED = "default", "tuned"
SCORE = EvaluatedMetric(ACCURACY, ACCURACY)
VALIDATION = "validation_"
"""Prefix of scores on the server's validation set."""
VALIDATED = EvaluatedMetric(VALIDATION + ACCURACY, "validation accuracy")
GOALS: dict[str, Measure] = {
    measure.key: measure
    for measure in (VALIDATED.stable, SCORE.stable, SCORE.final, ROUNDS, SECONDS, UPLINK_MB, CLIENT_UPDATES)
}
"""Key in summary.json -> measure that can rank trials."""


def goal_of(key: str, score: str = "") -> Measure:
    """Measure that ranks trials: one of `GOALS`, or stable_NAME or final_NAME of a score of this name.

    `score` is the score of the runs; with it, the accuracy of `GOALS` stands for that score, and no other is allowed.

    Raises ConfigError for any other key.
    """
    if score:
        of_score = {goal: goal.replace(ACCURACY, score) for goal in GOALS}
        key = of_score.get(key, key)
        if key not in of_score.values():
            raise ConfigError(f"--metric takes one of {', '.join(of_score.values())} for these runs. Got {key!r}.")
    kind, _, name = key.partition("_")
    if key not in GOALS and kind in ("stable", "final") and name:
        metric = EvaluatedMetric(name, score_title(name))
        return metric.stable if kind == "stable" else metric.final
    if key not in GOALS:
        raise ConfigError(f"--metric takes one of {', '.join(GOALS)}, or stable_NAME of a score. Got {key!r}.")
    return GOALS[key]


class BestTrial(TypedDict):
    """Best trial of a method: its number (from 1) and settings, the values of all trials, and number -> failure."""

    trial: int
    settings: dict[str, Value]
    values: list[float | None]
    failures: dict[str, str]


class TuningFile(TypedDict):
    """Content of the file: `over` has the text of each setting's range, `metric` is the key of the goal."""

    version: int
    strategies: list[str]
    trials: int
    tuning_seeds: list[int]
    over: dict[str, str]
    metric: str
    settings: dict[str, Value]
    best: NotRequired[dict[str, BestTrial]]


def read_tuning(folder: Path) -> dict[str, Any] | None:
    """The content of tuning.json in `folder`; None if there is no such file.

    Raises ConfigError if the file is damaged or has another version.
    """
    path = folder / NAME
    tuning = read_object(path, TuningFile, ["version", "strategies", "trials", "tuning_seeds", "over", "metric"])
    if tuning is not None and tuning["version"] != VERSION:
        raise ConfigError(f"{path} is not a tuning that this version of fedsel can read.")
    return tuning


def settings_text(settings: Mapping[str, Value]) -> str:
    """Settings of a trial as text; numbers have four significant digits."""
    return ", ".join(
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items()
    )
