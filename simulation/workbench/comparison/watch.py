"""Progress of the runs of a comparison, or of one run, only from their files (`fedsel watch`)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedsel_app.config import ConfigError
from fedsel_app.config.run import score_title
from fedsel_app.records.reading import check_round, read_rows, rows_from_end
from fedsel_app.records.run_folder import read_config
from fedsel_app.records.schema import ACCURACY, Row, schedule_round, score_name
from fedsel_app.records.summary import MB
from simulation.workbench.comparison.plan_file import check_failure, read_plan
from simulation.workbench.terminal import whole_table

REFRESH_S = 1.0
TAIL_BYTES = 1 << 16
ENDED = ("finished", "failed")


@dataclass(frozen=True)
class Progress:
    """Progress of one run.

    Attributes
    ----------
    state : "waiting", "started", "finished" or "failed"
    round, rounds : the last finished round, and the maximum number of rounds
    score, score_name : score of the last evaluation, and its name
    uplink_mb : MB (10^6 bytes) sent to the server so far, as encoded
    time_s : seconds so far, on the clock of the run
    age_s : seconds since the last round was written
    """

    name: str
    state: str
    round: int = 0
    rounds: int | None = None
    score: float | None = None
    uplink_mb: float | None = None
    time_s: float | None = None
    age_s: float | None = None
    score_name: str = ACCURACY


def progress_of_run(name: str, folder: Path, *, failed: bool = False) -> Progress:
    """Progress of the run in `folder`; `failed` is True if its process failed, which its own files do not show."""
    if not (folder / "config.json").exists():
        return Progress(name, "failed" if failed else "waiting")
    rounds = int(read_config(folder, ["rounds"])["rounds"])
    newest, tested = last_round(folder / "rounds.jsonl")
    return Progress(
        name,
        "finished" if (folder / "summary.json").exists() else "failed" if failed else "started",
        schedule_round(newest) if newest else 0,
        rounds,
        tested.get(score_name(tested)),
        newest["total_uplink_bytes"] / MB if newest else None,
        newest.get("time_s"),
        time.time() - (folder / "rounds.jsonl").stat().st_mtime if newest else None,
        score_name(tested),
    )


def read_progress(folder: Path) -> list[Progress]:
    """Progress of all runs of the comparison in `folder`, or of the one run in it.

    Raises ConfigError if the folder has neither.
    """
    comparison = read_plan(folder)
    if comparison is not None:
        failed = {row["name"] for row in read_rows(folder / "failures.jsonl", check_failure)}
        return [
            progress_of_run(run["name"], folder / run["folder"], failed=run["name"] in failed)
            for run in comparison["runs"]
        ]
    if not (folder / "config.json").exists():
        raise ConfigError(f"{folder} has neither a comparison (comparison.json) nor a run (config.json).")
    return [progress_of_run(folder.absolute().name, folder)]


def progress_table(runs: Sequence[Progress], caption: str = "") -> Table:
    """Table of the runs, one line each."""
    ended = sum(run.state in ENDED for run in runs)
    scores = dict.fromkeys(score_title(run.score_name) for run in runs if run.score is not None)
    columns = ("round", " or ".join(scores) or ACCURACY, "MB sent", "seconds", "last round")
    table = whole_table("run", "state", numbers=columns, title=f"{ended} of {len(runs)} runs ended", caption=caption)
    for run in runs:
        age = "" if run.age_s is None or run.state in ENDED else f"{run.age_s:.0f} s ago"
        rounds = "" if run.rounds is None else f"{run.round}/{run.rounds}"
        numbers = _shown(run.score, ".4f"), _shown(run.uplink_mb, ".3f"), _shown(run.time_s, ".1f")
        table.add_row(run.name, run.state, rounds, *numbers, age)
    return table


def follow(folder: Path, console: Console) -> None:
    """Show a live table until every run has ended; without a terminal, print it once."""
    runs = read_progress(folder)
    if not console.is_terminal:
        console.print(progress_table(runs))
        return
    with Live(progress_table(runs), console=console, auto_refresh=False) as live:
        while any(run.state not in ENDED for run in runs):
            time.sleep(REFRESH_S)
            runs = read_progress(folder)
            live.update(progress_table(runs), refresh=True)


def last_round(path: Path) -> tuple[Row, Row]:
    """The last complete row of a rounds.jsonl, and the last one with a score near the file's end; {}: none."""
    newest: Row = {}
    for row in rows_from_end(path, check_round, TAIL_BYTES):
        newest = newest or row
        if row.get(score_name(row)) is not None:
            return newest, row
    return newest, {}


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
