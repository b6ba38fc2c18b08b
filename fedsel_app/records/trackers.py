"""Trackers of the setting 'track': what each receives of a run, where it stores it, and how its failures are
handled."""

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Protocol

from fedsel_app.config import ConfigError, Value
from fedsel_app.config.plugins import described
from fedsel_app.records.files import write_json
from fedsel_app.records.listeners import Listener
from fedsel_app.records.reading import read_object
from fedsel_app.records.run_folder import RunFolder
from fedsel_app.records.schema import Row
from fedsel_app.records.tracked_runs import EventFiles, MLflowRun, TrackedRun, WandbRun, prepare_mlflow

RUN_IDS = "tracking.json"
"""File in the run folder: tracker -> its id of the run, with which a resumed run continues."""


class Tracker(Listener, Protocol):
    """Tracker: a listener with its own run, which a resumed run continues."""

    run_id: str


@dataclass(frozen=True)
class Kind:
    """Kind of tracker.

    Attributes
    ----------
    package : name of the package that it needs
    open : opens the tracker for a run
    prepare : creates what parallel runs share, before they start
    """

    package: str
    open: Callable[[TrackedRun], Tracker]
    prepare: Callable[[], object] = lambda: None


KINDS = {
    "tensorboard": Kind("torch.utils.tensorboard", EventFiles),
    "mlflow": Kind("mlflow", MLflowRun, prepare_mlflow),
    "wandb": Kind("wandb", WandbRun),
}


class GuardedTracker:
    """Listener in front of a tracker. After its first exception it prints one warning and disables the tracker."""

    def __init__(self, name: str, open_tracker: Callable[[], Listener]) -> None:
        self._name = name
        self._tracker: Listener | None = None
        self._guard(lambda: setattr(self, "_tracker", open_tracker()))

    def on_round(self, row: Row) -> None:
        """Pass a finished round to the tracker."""
        if (tracker := self._tracker) is not None:
            self._guard(lambda: tracker.on_round(row))

    def on_end(self, summary: Row | None) -> None:
        """Pass the end of the run to the tracker."""
        if (tracker := self._tracker) is not None:
            self._guard(lambda: tracker.on_end(summary))

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the run continues after any exception of a tracker
            self._tracker = None
            sys.stderr.write(
                f"fedsel: {self._name} no longer tracks this run ({described(error)}); the run continues.\n"
            )


def add_trackers(folder: RunFolder, names: Iterable[str], settings: Mapping[str, Value]) -> None:
    """Let the trackers of these names listen to the run in `folder`."""
    for name in names:
        folder.listeners.append(GuardedTracker(name, partial(_open, name, folder, settings)))


def _open(name: str, folder: RunFolder, settings: Mapping[str, Value]) -> Tracker:
    """Open a tracker, with its earlier run if there is one, and store the run's id."""
    ids = read_object(folder.path / RUN_IDS) or {}
    tracker = KINDS[name].open(TrackedRun(folder.path, settings, ids.get(name), folder.rows))
    if ids.get(name) != tracker.run_id:
        write_json(folder.path / RUN_IDS, {**ids, name: tracker.run_id})
    return tracker


def prepare_trackers(names: Iterable[str]) -> None:
    """Create what parallel runs share at these trackers. If this fails, each run reports the reason."""
    for name in names:
        with suppress(Exception):
            KINDS[name].prepare()


def refuse_absent(names: Iterable[str]) -> None:
    """Raise ConfigError if the package of one of these trackers is not installed."""
    for name in names:
        try:
            import_module(KINDS[name].package)
        except ImportError as error:
            raise ConfigError(
                f"The 'track' parameter {name} needs the package {name}; install it with "
                f"`pip install 'fedsel[{name}]'`, or leave it out."
            ) from error
