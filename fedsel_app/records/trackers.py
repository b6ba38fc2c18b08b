"""Trackers of the setting 'track': TensorBoard's event files, a run of MLflow and a run of Weights & Biases.

MLflow's own variables (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME) set where its run is stored; the defaults are
MLflow's own place and the experiment "fedsel". A run of Weights & Biases is offline, in the folder `wandb` of the run
folder, unless WANDB_MODE has another value; `wandb sync` uploads it. A resumed run writes another part with the same id
and all rounds, because a killed process may have lost the last rounds.

A tracker is opened with the run folder and its own id of the run, which is None if it does not have this run yet.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, TypeVar

from fedsel_app.config.plugins import described
from fedsel_app.records.files import write_json
from fedsel_app.records.reading import read_object
from fedsel_app.records.run_folder import RunFolder
from fedsel_app.records.schema import Row

RUN_IDS = "tracking.json"
"""File in the run folder: tracker -> its id of the run, with which a resumed run continues."""
MLFLOW_PARAMS = 100
"""Largest number of parameters that an MLflow server accepts at once."""
WANDB_START_S = 20.0
"""Timeout in seconds for the server of Weights & Biases at the start of a run."""
ResultT = TypeVar("ResultT")


def numbers(row: Row) -> dict[str, float]:
    """All numbers of a round by name, including the other scores unless a field has the same name."""
    of_clients = {f"client_{name}": value for name, value in row.get("client_metrics", {}).items()}
    values = row.get("metrics", {}) | of_clients | row
    return {name: value for name, value in values.items() if isinstance(value, int | float) and name != "round"}


class EventFiles:
    """Event files in the folder `tensorboard` of the run folder, written round by round.

    If a resumed run repeats rounds, what earlier processes wrote about these rounds is dropped.
    """

    run_id = "tensorboard"

    def __init__(self, folder: RunFolder, run_id: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder.path / self.run_id), purge_step=len(folder.rows) + 1)
        if run_id is None:
            for row in folder.rows:
                self.on_round(row)

    def on_round(self, row: Row) -> None:
        """Write one finished round."""
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, row["round"])
        self._writer.flush()

    def on_end(self, summary: Row | None) -> None:
        """Close the files."""
        self._writer.close()


class MLflowRun:
    """Run of MLflow: settings as parameters, every number of a round as a metric, the summary at the end.

    A number of a round is logged once. A resumed run does not change the numbers that were logged before.
    """

    def __init__(self, folder: RunFolder, run_id: str | None) -> None:
        self._client, experiment = prepare_mlflow()
        history = self._client.get_metric_history
        self._steps = cache(lambda name: {entry.step for entry in history(run_id, name)} if run_id else set[int]())
        self.run_id = run_id or str(self._client.create_run(experiment, run_name=folder.path.name).info.run_id)
        if run_id:
            self._client.update_run(self.run_id, status="RUNNING")
        else:
            from mlflow.entities import Param

            params = [Param(key, str(value)) for key, value in folder.config.items()]
            for first in range(0, len(params), MLFLOW_PARAMS):
                self._client.log_batch(self.run_id, params=params[first : first + MLFLOW_PARAMS])
        for row in folder.rows:
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


class WandbRun:
    """Run of Weights & Biases: settings as its config, numbers of a round in its history, the summary at the end."""

    def __init__(self, folder: RunFolder, run_id: str | None) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
            init_timeout=WANDB_START_S,
        )
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedsel"),
            mode=mode,
            id=run_id,
            resume="allow" if run_id else None,
            name=folder.path.name,
            dir=str(folder.path),
            config=dict(folder.config),
            reinit="create_new",
            settings=settings,
        )
        self.run_id = str(self._run.id)
        for row in folder.rows:
            self.on_round(row)

    def on_round(self, row: Row) -> None:
        """Log one finished round."""
        self._run.log(numbers(row), step=row["round"])

    def on_end(self, summary: Row | None) -> None:
        """Set the summary and end the run, with exit code 1 if it stopped before its end."""
        if summary is not None:
            plain = {name: value for name, value in summary.items() if isinstance(value, int | float | str)}
            self._run.summary.update(plain)
        self._run.finish(exit_code=1 if summary is None else 0)


Tracker = EventFiles | MLflowRun | WandbRun
KINDS: dict[str, Callable[[RunFolder, str | None], Tracker]] = {
    "tensorboard": EventFiles,
    "mlflow": MLflowRun,
    "wandb": WandbRun,
}


class Guard:
    """Guard in front of a tracker. After the tracker's first exception it prints one warning and calls it no more."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._failed = False

    def call(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT | None:
        """Call a function of the tracker; None if one of its functions has failed."""
        if self._failed:
            return None
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - the run continues after any exception of a tracker
            self._failed = True
            sys.stderr.write(
                f"fedsel: {self._name} no longer tracks this run ({described(error)}); the run continues.\n"
            )
            return None


def add_trackers(folder: RunFolder, names: Iterable[str]) -> None:
    """Let the trackers of these names listen to the run in `folder`."""
    for name in names:
        guard = Guard(name)
        if (tracker := guard.call(_open, name, folder)) is not None:
            folder.listeners.append(partial(guard.call, tracker.on_round))
            folder.at_end.append(partial(guard.call, tracker.on_end))


def _open(name: str, folder: RunFolder) -> Tracker:
    """Open a tracker, with its earlier run if there is one, and store the run's id."""
    ids = read_object(folder.path / RUN_IDS) or {}
    tracker = KINDS[name](folder, ids.get(name))
    if ids.get(name) != tracker.run_id:
        write_json(folder.path / RUN_IDS, {**ids, name: tracker.run_id})
    return tracker
