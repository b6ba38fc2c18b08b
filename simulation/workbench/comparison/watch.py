"""Progress of the runs of a comparison or a tuning, or of one run, only from their files (`fedsel watch`)."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fedsel_app.config import ConfigError
from fedsel_app.records.reading import check_round, read_rows, rows_from_end
from fedsel_app.records.run_folder import read_config
from fedsel_app.records.schema import ACCURACY, Row, schedule_round, score_name
from fedsel_app.records.summary import MB
from simulation.workbench.comparison.plan_files import check_failure, read_plan, read_tuning
from simulation.workbench.terminal import duration_text

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
    folder, method, cell : run folder, selection method, and cell of the grid as text
    reason : why the process of the run failed
    pace_s : computing time of the last round in seconds
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
    folder: Path = Path()
    method: str = ""
    cell: str = ""
    reason: str = ""
    pace_s: float | None = None


def progress_of_run(name: str, folder: Path, *, reason: str = "", cell: str = "") -> Progress:
    """Progress of the run in `folder`; `reason` says why its process failed, which its own files do not show."""
    if not (folder / "config.json").exists():
        return Progress(name, "failed" if reason else "waiting", reason=reason)
    config = read_config(folder, ["rounds"])
    newest, tested = last_round(folder / "rounds.jsonl")
    finished = (folder / "summary.json").exists()
    return Progress(
        name,
        "finished" if finished else "failed" if reason else "started",
        schedule_round(newest) if newest else 0,
        int(config["rounds"]),
        tested.get(score_name(tested)),
        newest["total_uplink_bytes"] / MB if newest else None,
        newest.get("time_s"),
        time.time() - (folder / "rounds.jsonl").stat().st_mtime if newest else None,
        score_name(tested),
        folder,
        str(config.get("strategy", name)),
        cell,
        "" if finished else reason,
        newest.get("wall_s"),
    )


def read_progress(folder: Path) -> list[Progress]:
    """Progress of all runs of the comparison or the tuning in `folder`, or of the one run in it.

    Raises ConfigError if the folder has none of them.
    """
    compared = _of_comparison(folder)
    if read_tuning(folder) is not None:
        later = Progress("the comparison of tuned methods", "waiting")
        return [*(_of_comparison(folder / "trials") or []), *([later] if compared is None else compared)]
    if compared is None and not (folder / "config.json").exists():
        raise ConfigError(f"{folder} has neither a comparison (comparison.json) nor a run (config.json).")
    return [progress_of_run(folder.absolute().name, folder)] if compared is None else compared


def _of_comparison(folder: Path) -> list[Progress] | None:
    """Progress of all runs of the comparison in `folder`; None if it has none."""
    comparison = read_plan(folder)
    if comparison is None:
        return None
    reasons = {row["name"]: row["message"] for row in read_rows(folder / "failures.jsonl", check_failure)}
    cells = [", ".join(f"{key}={value}" for key, value in run.get("cell", {}).items()) for run in comparison["runs"]]
    return [
        progress_of_run(run["name"], folder / run["folder"], reason=reasons.get(run["name"], ""), cell=cell)
        for run, cell in zip(comparison["runs"], cells, strict=True)
    ]


def left_line(runs: Sequence[Progress]) -> str:
    """Line on what is done, what failed, what is left, and about how long that takes at the pace of the last rounds."""
    left = [run for run in runs if run.state not in ENDED]
    failed = sum(run.state == "failed" for run in runs)
    line = f"{len(runs) - len(left)} of {len(runs)} runs ended" + (f", {failed} failed" if failed else "")
    paces_s = [run.pace_s for run in runs if run.pace_s is not None]
    if not (left and paces_s):
        return line
    longest = max(run.rounds or 0 for run in runs)
    rounds = sum(max(0, (run.rounds or longest) - run.round) for run in left)
    side_by_side = max(1, sum(run.state == "started" for run in left))
    return f"{line}; about {duration_text(statistics.fmean(paces_s) * rounds / side_by_side)} left"


def follow(folder: Path, console: Console) -> None:
    """Show what is done and left until every run has ended; without a terminal, print it once."""
    runs = read_progress(folder)
    if console.is_terminal:
        with console.status(Text(follow_line(runs))) as status:
            while any(run.state not in ENDED for run in runs):
                time.sleep(REFRESH_S)
                runs = read_progress(folder)
                status.update(Text(follow_line(runs)))
    console.print(follow_line(runs), markup=False, highlight=False, soft_wrap=True)


def follow_line(runs: Sequence[Progress]) -> str:
    """`left_line`, and the rounds of the runs that train."""
    rounds = ", ".join(f"{run.name} round {run.round} of {run.rounds}" for run in runs if run.state == "started")
    return left_line(runs) + (f" ({rounds})" if rounds else "")


def last_round(path: Path) -> tuple[Row, Row]:
    """The last complete row of a rounds.jsonl, and the last one with a score near the file's end; {}: none."""
    newest: Row = {}
    for row in rows_from_end(path, check_round, TAIL_BYTES):
        newest = newest or row
        if row.get(score_name(row)) is not None:
            return newest, row
    return newest, {}
