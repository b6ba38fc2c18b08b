"""MLflow run: settings as parameters, every number of a round as a metric, the summary at the end.

It lies where MLflow's own variables say (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME), else where MLflow puts it, in
the experiment "fedsel".
"""

import os
import time
from typing import TYPE_CHECKING

from fedsel_app.records.schema import Row
from fedsel_app.records.trackers import TrackedRun, numbers

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "fedsel"
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
"""A server that does not answer holds a run up once, for seconds."""
PARAMS = 100
"""Parameters that a server takes at once."""
SUMMARY = "summary/"


class MLflowRun:
    """Run of MLflow. A round is logged once: numbers that are there from before a resumption stay as they are."""

    def __init__(self, run: TrackedRun) -> None:
        self._client = make_client()
        from mlflow.entities import Metric, Param

        self._metric = Metric
        self._logged: dict[str, set[int]] | None = None
        if run.run_id is None:
            experiment = experiment_id(self._client)
            self.run_id = str(self._client.create_run(experiment, run_name=run.folder.name).info.run_id)
            params = [Param(key, str(value)) for key, value in run.settings.items()]
            for first in range(0, len(params), PARAMS):
                self._client.log_batch(self.run_id, params=params[first : first + PARAMS])
        else:
            self.run_id, self._logged = run.run_id, {}
            self._client.update_run(self.run_id, status="RUNNING")
        for row in run.rows:
            self.on_round(row)

    def on_round(self, row: Row) -> None:
        """Log one finished round."""
        self._log(numbers(row), row["round"])

    def on_end(self, summary: Row | None) -> None:
        """Log the summary and end the run: finished, or killed where it stopped before."""
        if summary is not None:
            found = {name: value for name, value in summary.items() if isinstance(value, int | float)}
            self._log({f"{SUMMARY}{name}": value for name, value in found.items()}, 0)
        self._client.set_terminated(self.run_id, "KILLED" if summary is None else "FINISHED")

    def _log(self, values: dict[str, float], step: int) -> None:
        missing = {name: value for name, value in values.items() if step not in self._steps(name)}
        now_ms = int(1000 * time.time())
        metrics = [self._metric(name, float(value), now_ms, step) for name, value in missing.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def _steps(self, name: str) -> set[int]:
        """Rounds that have a number already, in a run that was resumed."""
        if self._logged is None:
            return set()
        if name not in self._logged:
            self._logged[name] = {entry.step for entry in self._client.get_metric_history(self.run_id, name)}
        return self._logged[name]


def prepare() -> None:
    """Make the store and the experiment, before runs side by side would each make them."""
    experiment_id(make_client())


def make_client() -> "MlflowClient":
    """MLflow's client, which gives a server up soon that does not answer."""
    for name, value in PATIENCE.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    return MlflowClient()


def experiment_id(client: "MlflowClient") -> str:
    """Id of the experiment, which is made if it is not there."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))
