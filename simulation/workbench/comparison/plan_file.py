"""Plan file of a comparison, comparison.json: the runs and settings that are read from it; and its failed runs."""

from pathlib import Path, PurePosixPath
from typing import Any, NotRequired, TypedDict

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.reading import check_fields, legible, read_object
from fedsel_app.records.schema import Row, RunFailure

PLAN_VERSION = 1


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
