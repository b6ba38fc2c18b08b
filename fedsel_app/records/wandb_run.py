"""Weights & Biases run: settings as its config, every number of a round in its history, the summary at the end.

It is offline, in the folder `wandb` of the run folder, unless WANDB_MODE says otherwise: `wandb sync` sends it. A
resumed run adds a part of the same id with all rounds: of a process that was killed the last ones may be lost there.
"""

import os
from typing import Any

from fedsel_app.records.schema import Row
from fedsel_app.records.trackers import TrackedRun, numbers

PROJECT = "fedsel"
PATIENCE_S = 20.0
"""Seconds that a server has to answer when a run begins."""


class WandbRun:
    """Run of Weights & Biases."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        settings = wandb.Settings(
            console="off",
            silent=True,
            disable_git=True,
            save_code=False,
            x_disable_stats=True,
            init_timeout=PATIENCE_S,
        )
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            mode=mode,
            id=run.run_id,
            resume="allow" if run.run_id else None,
            name=run.folder.name,
            dir=str(run.folder),
            config=dict(run.settings),
            reinit="create_new",
            settings=settings,
        )
        self.run_id = str(self._run.id)
        for row in run.rows:
            self.on_round(row)

    def on_round(self, row: Row) -> None:
        """Log one finished round."""
        self._run.log(numbers(row), step=row["round"])

    def on_end(self, summary: Row | None) -> None:
        """Set the summary and end the run; exit code 1 where it stopped before."""
        if summary is not None:
            found = {name: value for name, value in summary.items() if isinstance(value, int | float | str)}
            self._run.summary.update(found)
        self._run.finish(exit_code=1 if summary is None else 0)
