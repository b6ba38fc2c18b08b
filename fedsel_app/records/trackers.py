"""Trackers of the setting 'track': TensorBoard's event files and a run of MLflow.

MLflow's own variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME) set where its run is stored; the defaults are
MLflow's own place and the experiment "fedsel". A tracker gets a resumed run as a new one, with all rounds.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from fedsel_app.config.plugins import described
from fedsel_app.records.run_folder import RunFolder
from fedsel_app.records.schema import Row

MLFLOW_PARAMS = 100
"""Largest number of parameters that an MLflow server accepts at once."""


def numbers(row: Row) -> dict[str, float]:
    """All numbers of a round by name, including the other scores unless a field has the same name."""
    of_clients = {f"client_{name}": value for name, value in row.get("client_metrics", {}).items()}
    values = row.get("metrics", {}) | of_clients | row
    return {name: value for name, value in values.items() if isinstance(value, int | float) and name != "round"}


class EventFiles:
    """Event files in the folder `tensorboard` of the run folder; new ones replace those of earlier processes."""

    def __init__(self, folder: RunFolder) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder.path / "tensorboard"), purge_step=1)

    def on_round(self, row: Row) -> None:
        """Write a finished round."""
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def on_end(self, summary: Row | None) -> None:
        """Close the files."""
        self._writer.close()


class MLflowRun:
    """Run of MLflow: settings as parameters, every number of a round as a metric, the summary at the end."""

    def __init__(self, folder: RunFolder) -> None:
        from mlflow.entities import Param

        self._client, experiment = prepare_mlflow()
        self._id = self._client.create_run(experiment, run_name=folder.path.name).info.run_id
        params = [Param(key, str(value)) for key, value in folder.config.items()]
        for first in range(0, len(params), MLFLOW_PARAMS):
            self._client.log_batch(self._id, params=params[first : first + MLFLOW_PARAMS])

    def on_round(self, row: Row) -> None:
        """Log a finished round."""
        from mlflow.entities import Metric

        now_ms = int(1000 * time.time())
        metrics = [Metric(name, float(value), now_ms, row["round"]) for name, value in numbers(row).items()]
        self._client.log_batch(self._id, metrics=metrics)

    def on_end(self, summary: Row | None) -> None:
        """Log the summary and end the run: finished, or killed if it stopped before its last round."""
        for name, value in numbers(summary or {}).items():
            self._client.log_metric(self._id, f"summary/{name}", value)
        self._client.set_terminated(self._id, "KILLED" if summary is None else "FINISHED")


def prepare_mlflow() -> tuple[Any, str]:
    """MLflow's client and the id of the experiment, which is created if it is absent.

    A server that does not answer delays the run once, by some seconds.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    from mlflow import MlflowClient

    client = MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedsel")
    experiment = client.get_experiment_by_name(name)
    return client, str(experiment.experiment_id if experiment else client.create_experiment(name))


KINDS: dict[str, Callable[[RunFolder], EventFiles | MLflowRun]] = {"tensorboard": EventFiles, "mlflow": MLflowRun}


def add_trackers(folder: RunFolder, names: Iterable[str]) -> None:
    """Let the trackers of these names listen to the run in `folder`, from its first round on."""
    for name in names:
        call = _guard(name)
        if (tracker := call(KINDS[name], folder)) is None:
            continue
        for row in folder.rows:
            call(tracker.on_round, row)
        folder.listeners.append(partial(call, tracker.on_round))
        folder.at_end.append(partial(call, tracker.on_end))


def _guard(name: str) -> Callable[..., Any]:
    """Call functions of the tracker `name`, until one raises an exception; then print one warning, and call no more."""
    failed = False

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal failed
        if failed:
            return None
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - the run continues after any exception of a tracker
            failed = True
            sys.stderr.write(f"fedsel: {name} no longer tracks this run ({described(error)}); the run continues.\n")

    return call
