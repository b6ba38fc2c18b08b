"""Lines on a comparison's planned runs (`fedsel compare --dry-run`), and the time that the runs left will take."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from simulation.engines.choice import choose
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.placement import cores_each
from simulation.workbench.comparison.plan import ComparisonPlan
from simulation.workbench.comparison.watch import progress_of_run
from simulation.workbench.terminal import duration_text


def left_text(finished: Sequence[Path], left: int, jobs: int) -> str:
    """About how long the runs that are `left` take, `jobs` at a time, at the pace of the finished ones; or empty."""
    paces_s = [summary["wall_s"] for folder in finished if (summary := read_summary(folder))]
    if not (paces_s and left):
        return ""
    return f"; about {duration_text(statistics.fmean(paces_s) * left / min(jobs, left))} left"


def plan_lines(comparison: ComparisonPlan, jobs: int) -> list[str]:
    """Lines on what the runs share, on each planned run, and on the time left, if a run is finished."""
    finished = [run.folder for run in comparison.runs if run.finished]
    left = len(comparison.runs) - len(finished)
    side_by_side = max(1, min(jobs, left))
    runs = [
        f"{run.name}: {choose(run.config, cores_each(side_by_side)).engine}, round "
        f"{progress_of_run(run.name, run.folder).round} of {run.config.run.rounds}{' (finished)' * run.finished}"
        for run in comparison.runs
    ]
    return [*filter(None, [comparison.kind]), *runs, f"Side by side: {jobs}{left_text(finished, left, jobs)}"]
