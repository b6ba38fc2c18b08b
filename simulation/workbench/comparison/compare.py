"""Comparison (`fedsel compare`): each run is a process and is done once; several run at a time.

A finished run is not changed, a run with a checkpoint continues from it, and any other begins at its first round. So
the same command completes a comparison that was killed.
"""

import math
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from fedsel_app.config.run import score_title
from fedsel_app.records.schema import ACCURACY, Row, score_name
from fedsel_app.records.summary import averaged_text
from simulation.engines.choice import choose
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.placement import cores_each
from simulation.workbench.comparison.plan import ComparisonPlan
from simulation.workbench.comparison.run_processes import carry_out
from simulation.workbench.comparison.watch import progress_of_run
from simulation.workbench.terminal import whole_table

MEASURES = {
    "final_{score}": ("final {score}", ".4f"),
    "stable_{score}": ("stable {score}", ".4f"),
    "rounds_to_target": ("rounds to target", ".1f"),
    "time_to_target_s": ("s to target", ".1f"),
    "uplink_to_target_mb": ("MB to target", ".3f"),
    "client_updates_to_target": ("client updates to target", ".0f"),
    "client_updates_to_best_validation": ("client updates to best validation", ".0f"),
}


def compare(comparison: ComparisonPlan, jobs: int, console: Console) -> dict[str, str]:
    """Carry out the unfinished runs of `comparison` as `carry_out` does, and print the results."""
    failures = carry_out(comparison, jobs, console)
    console.print(results_table(comparison))
    for name, reason in failures.items():
        console.print(f"{name} failed: {reason}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"Next: fedsel report {comparison.out}", markup=False, highlight=False, soft_wrap=True)
    return failures


def plan_table(comparison: ComparisonPlan, jobs: int) -> Table:
    """Table of the planned runs, done and left, one line per run."""
    cores = cores_each(max(1, min(jobs, sum(not run.finished for run in comparison.runs))))
    caption = f"{comparison.kind} In {comparison.out}, side by side: {jobs}".lstrip()
    table = whole_table("run", "strategy", "seed", "engine", "rounds", "done", "what is left", caption=caption)
    for run in comparison.runs:
        done = progress_of_run(run.name, run.folder).round
        left = "nothing" if run.finished else "continues from its checkpoint" if run.checkpointed else "everything"
        table.add_row(
            run.name,
            run.strategy,
            str(run.seed),
            choose(run.config, cores).engine,
            str(run.config.run.rounds),
            str(done),
            left,
        )
    return table


def results_table(comparison: ComparisonPlan) -> Table:
    """Table of means ± standard deviations over the seeds, one line per strategy and cell of the grid."""
    summaries: dict[str, list[Row | None]] = {}
    for run in comparison.runs:
        label = " ".join([run.strategy, *(f"{key}={value}" for key, value in run.cell.items())])
        summaries.setdefault(label, []).append(read_summary(run.folder))
    finished = {label: [summary for summary in runs if summary] for label, runs in summaries.items()}
    scores = list(dict.fromkeys(score_name(run) for runs in finished.values() for run in runs)) or [ACCURACY]
    measures = {
        key.format(score=score): (name.format(score=score_title(score)), form)
        for key, (name, form) in MEASURES.items()
        for score in scores
    }
    known = [key for key in measures if any(known_numbers(runs, key) for runs in finished.values())]
    title = f"Mean ± standard deviation over the seeds {', '.join(map(str, comparison.seeds))}"
    counts = {-(-run.config.run.rounds // run.config.evaluation.eval_every) for run in comparison.runs}
    averaged = " or ".join(dict.fromkeys(averaged_text(count) for count in sorted(counts)))
    caption = f"{comparison.kind} Stable {' or '.join(map(score_title, scores))}: {averaged}.".lstrip()
    numbers = "runs", *(measures[key][0] for key in known), "client failures"
    table = whole_table("strategy", numbers=numbers, title=title, caption=caption)
    for label, runs in finished.items():
        cells = [mean_and_deviation(known_numbers(runs, key), len(runs), measures[key][1]) for key in known]
        failures = sum(run["failure_count"] for run in runs)
        table.add_row(label, f"{len(runs)}/{len(summaries[label])}", *cells, str(failures))
    return table


def known_numbers(summaries: Sequence[Row], key: str) -> list[float]:
    """Numbers under `key` of the runs that have one: a run that has not reached the target has no time to it."""
    numbers = [summary.get(key) for summary in summaries]
    return [number for number in numbers if number is not None and not math.isnan(number)]


def mean_and_deviation(numbers: Sequence[float], runs: int, form: str) -> str:
    """Mean ± standard deviation (n - 1) over the runs with the number, and their share if some of `runs` lack it."""
    if not numbers:
        return "–"
    deviation = f" ± {statistics.stdev(numbers):{form}}" if len(numbers) > 1 else ""
    share = f" ({len(numbers)} of {runs})" if len(numbers) < runs else ""
    return f"{statistics.fmean(numbers):{form}}{deviation}{share}"
