"""MLflow run: settings as parameters, every number of a round as a metric, the summary at the end.

MLflow's own variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME) say where it is; without them it is in the
experiment "fedsel", where MLflow stores by default.
"""

import os
import time
from functools import cache
from typing import Any

from fedsel_app.records.schema import Row
from fedsel_app.records.trackers import TrackedRun, numbers

PARAMS = 100
"""Parameters that a server takes at once."""


class MLflowRun:
    """Run of MLflow. A number of a round is logged once; those from before a resumption stay as they are."""

    def __init__(self, run: TrackedRun) -> None:
        self._client, experiment = prepare()
        self._steps = cache(self._logged_steps if run.run_id else lambda name: set[int]())
        self.run_id = run.run_id or str(self._client.create_run(experiment, run_name=run.folder.name).info.run_id)
        if run.run_id:
            self._client.update_run(self.run_id, status="RUNNING")
        else:
            from mlflow.entities import Param

            params = [Param(key, str(value)) for key, value in run.settings.items()]
            for first in range(0, len(params), PARAMS):
                self._client.log_batch(self.run_id, params=params[first : first + PARAMS])
        for row in run.rows:
            self.on_round(row)

    def on_round(self, row: Row) -> None:
        """Log a finished round."""
        self._log(numbers(row), row["round"])

    def on_end(self, summary: Row | None) -> None:
        """Log the summary and end the run: finished, or killed if it stopped before its last round."""
        if summary is not None:
            self._log({f"summary/{name}": value for name, value in numbers(summary).items()}, 0)
        self._client.set_terminated(self.run_id, "KILLED" if summary is None else "FINISHED")

    def _log(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(1000 * time.time())
        missing = [name for name in values if step not in self._steps(name)]
        self._client.log_batch(
            self.run_id, metrics=[Metric(name, float(values[name]), now_ms, step) for name in missing]
        )

    def _logged_steps(self, name: str) -> set[int]:
        return {entry.step for entry in self._client.get_metric_history(self.run_id, name)}


def prepare() -> tuple[Any, str]:
    """MLflow's client and the id of the experiment, which is made if it is absent.

    A server that does not answer delays a run once, for seconds.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    from mlflow import MlflowClient

    client = MlflowClient()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedsel")
    found = client.get_experiment_by_name(name)
    return client, str(found.experiment_id if found else client.create_experiment(name))
