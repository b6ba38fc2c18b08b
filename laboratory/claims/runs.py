"""Runs of claims (`claims run`). Claims share runs: each runs once and is measured when it ends."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedsel_app.config import DECLARED, ConfigError, Value, changes_numbers
from fedsel_app.records.reading import read_rows
from fedsel_app.wiring.configuration import AppConfig
from laboratory.claims.measured import Measured, has_all, identity, read_measured, run_of, write_measured
from laboratory.claims.metrics import SPENT, ClaimMeasure, history, measured_values
from laboratory.claims.study import Study
from laboratory.claims.tuned import Search
from simulation.workbench.command_line.parser import FAILURE
from simulation.workbench.comparison.plan import ComparisonPlan, PlannedRun, default_jobs, gpu_count
from simulation.workbench.comparison.plan_files import check_failure
from simulation.workbench.comparison.run_processes import carry_out
from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run

FILE = "measured.jsonl"


@dataclass(frozen=True)
class AskedRun:
    """Run that claims need, and the metrics that they need from it."""

    identity: str
    config: AppConfig
    metrics: tuple[ClaimMeasure, ...]


def asked_runs(studies: Sequence[Study]) -> list[AskedRun]:
    """Runs of all `studies`, each once: one study after the other, seed by seed."""
    runs: dict[str, AskedRun] = {}
    for study in studies:
        for seed in study.seeds:
            for side in study.sides:
                name = run_of(study, side, seed)
                before = runs[name].metrics if name in runs else ()
                joined = tuple({metric.column: metric for metric in (*before, *study.metrics)}.values())
                runs[name] = AskedRun(name, study.configuration(side, seed), joined)
    return list(runs.values())


def missing_runs(studies: Sequence[Study], measured: Measured) -> list[AskedRun]:
    """Runs of `studies` that were not measured."""
    return [
        run
        for run in asked_runs(studies)
        if run.identity not in measured.rows or not has_all(measured.rows[run.identity], run.metrics)
    ]


def run_stages(
    studies: Sequence[Study], out: Path, place: Mapping[str, Value], jobs: int, budget_s: float, console: Console
) -> dict[str, str]:
    """Carry out `studies` as `run_claims` does, stage by stage: the runs of a search decide those that follow."""
    began_s, known = time.monotonic(), 0
    while True:
        measured = read_measured(out / FILE)
        stages = [stage for study in studies for stage in study.parts(measured)]
        left_s = budget_s - (time.monotonic() - began_s)
        if len(stages) == known or left_s <= 0.0:
            return {}
        if failures := run_claims(stages, out, place, jobs, left_s, console):
            return failures
        known = len(stages)


def run_claims(
    studies: Sequence[Study], out: Path, place: Mapping[str, Value], jobs: int, budget_s: float, console: Console
) -> dict[str, str]:
    """Carry out and measure the runs that are missing in `out`. Returns failed run -> reason.

    `place` has settings that change no number, such as the folder of the data.

    Raises ConfigError for another setting in `place`, or a run that would be refused.
    """
    for key in place:
        if key != "data-path" and (changes_numbers(key) or DECLARED[key].own):
            raise ConfigError(
                f"The claims fix '{key}'. --set takes settings that do not change results, such as data-path or "
                "download."
            )
    missing = missing_runs(studies, read_measured(out / FILE))
    if not missing:
        console.print(f"Nothing is missing: all runs are measured in {out / FILE}.", soft_wrap=True)
        return {}
    asked = {_name(run): run for run in missing}
    planned = [_planned(run, out, place) for run in missing]
    strategies = list(dict.fromkeys(run.strategy for run in planned))
    seeds = sorted({run.seed for run in planned})
    comparison = ComparisonPlan(out, strategies, seeds, {}, {}, strategies[0], planned)
    replace(comparison, runs=list({_without_seed(run.config): run for run in planned}.values())).check()

    def measure(run: PlannedRun) -> None:
        keep(out / FILE, asked[run.name], run.folder)

    for run in planned:
        if run.finished:
            measure(run)
    jobs = jobs or default_jobs([run.config for run in planned], gpu_count())
    failures = carry_out(comparison, jobs, console, finished=measure, budget_s=budget_s)
    searched = {run.identity for run in asked_runs([study for study in studies if isinstance(study, Search)])}
    for row in read_rows(out / "failures.jsonl", check_failure):
        if asked[row["name"]].identity in searched and row["exit_code"] == FAILURE:
            keep_failed(out / FILE, asked[row["name"]], failures.pop(row["name"]))
    return failures


def keep(path: Path, asked: AskedRun, folder: Path) -> None:
    """Add the run in `folder` to the measured runs. Values that other claims measured before are kept."""
    rows: dict[str, Mapping[str, Any]] = dict(read_measured(path).rows)
    run = read_recorded_run(folder, asked.identity, {}, RecordedRun)
    if run is None:
        raise ConfigError(f"{folder} has no run.")
    before = rows[asked.identity]["values"] if asked.identity in rows else {}
    rows[asked.identity] = {
        "run": asked.identity,
        "strategy": run.strategy,
        "seed": run.seed,
        "wall_s": round(float(sum(row["wall_s"] for row in run.rows)), 2),
        "values": before | {key: _short(value) for key, value in measured_values(run, list(asked.metrics)).items()},
        **_history(run, asked),
    }
    write_measured(path, rows)


def _history(run: RecordedRun, asked: AskedRun) -> dict[str, dict[str, list[float]]]:
    """History of a run, six digits each, if a metric is the mean of several evaluations; otherwise nothing."""
    if all(metric.evaluations == 1 for metric in asked.metrics):
        return {}
    spent = {currency: history(run, currency) for currency in SPENT}
    lists = {"accuracy": spent["rounds"][1]} | {currency: of for currency, (of, _) in spent.items()}
    return {"history": {key: [float(f"{value:.6g}") for value in values] for key, values in lists.items()}}


def keep_failed(path: Path, asked: AskedRun, reason: str) -> None:
    """Add a run of a search that failed, without any value: its settings count as the worst.

    The row is committed, so it has the `reason` without its end, which names the log in a folder of this machine.
    """
    rows: dict[str, Mapping[str, Any]] = dict(read_measured(path).rows)
    run, values = asked.config.run, {metric.column: None for metric in asked.metrics}
    known = {"run": asked.identity, "strategy": run.strategy, "seed": run.seed, "wall_s": 0.0}
    rows[asked.identity] = {**known, "values": values, "failed": reason.partition(" (exit code ")[0]}
    write_measured(path, rows)


def _planned(asked: AskedRun, out: Path, place: Mapping[str, Value]) -> PlannedRun:
    name = _name(asked)
    values = {**asked.config.values(), **place, "out": str(out / "runs" / name)}
    config = AppConfig.from_values(values)
    return PlannedRun(name, config.run.strategy, config.run.seed, {}, out / "runs" / name, config)


def _without_seed(config: AppConfig) -> str:
    """Identity of a run without its seed, which no check depends on."""
    return identity(replace(config, run=replace(config.run, seed=0)))


def _name(asked: AskedRun) -> str:
    return f"{asked.config.run.strategy}-s{asked.config.run.seed}-{asked.identity}"


def _short(value: float | None) -> float | None:
    """Value with eight significant digits."""
    return None if value is None else float(f"{value:.8g}")
