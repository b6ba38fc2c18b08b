"""Execution of a tuning (`fedsel tune`): the trials of all methods, then the best trial of each on other seeds.

The first trial of each method has its default settings, so the best is never worse than these on the tuning seeds.
Runs are carried out as in `fedsel compare`, and Optuna's storage keeps all trials. So the same command completes a
tuning that was killed.
"""

import errno
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tomli_w
from rich.console import Console

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.fedsel_folder import make_private_folder
from fedsel_app.records.files import RecordError, write_text
from simulation.engines import processes
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.compare import compare
from simulation.workbench.comparison.plan import PlannedRun
from simulation.workbench.comparison.run_processes import RunProcesses, lay_out, locked_comparison
from simulation.workbench.comparison.tuning_file import BestTrial, settings_text
from simulation.workbench.tuning.plan import Tuning
from simulation.workbench.tuning.studies import FAILURE, MethodStudy

PRESET = "tuned.toml"
DISK = tuple(map(os.strerror, (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)))
"""Errors for which no settings are to blame: a trial that ends with one is carried out again, and is no failed one."""


class Trial(NamedTuple):
    """Trial of a method: its settings, and its runs, or the reason for which they were refused."""

    settings: dict[str, Value]
    runs: Sequence[PlannedRun]
    refused: str = ""


def tune(tuning: Tuning, jobs: int, console: Console) -> dict[str, str]:
    """Carry out the missing trials, then compare the default settings with the best of each method.

    Returns
    -------
    dict
        Name of each failed run of the comparison -> reason.

    Raises
    ------
    ConfigError
        If another process carries out the same tuning, or all trials of a method failed.
    RecordError
        If the disk of a trial failed.
    """
    make_private_folder(tuning.out)
    make_private_folder(tuning.out / "trials")
    with locked_comparison(tuning.out / "trials"), processes.exit_on_signals():
        tuning.write()
        best = best_of_trials(tuning, jobs, console)
        tuning.write(best)
        write_preset(tuning, best)
    comparison = tuning.comparison(best)
    comparison.check()
    return compare(comparison, jobs, console)


def best_of_trials(tuning: Tuning, jobs: int, console: Console) -> dict[str, BestTrial]:
    """Carry out the missing trials, number by number for all methods at once. Returns the best trial of each method."""
    goal, seed = tuning.goal, min(tuning.tuning_seeds)
    studies = {
        name: MethodStudy(tuning.out, name, space, maximize=goal.higher_wins, seed=seed)
        for name, space in tuning.spaces.items()
    }
    known: list[PlannedRun] = []
    with RunProcesses(tuning.out / "trials", jobs, console) as run_processes:
        for number in range(1, tuning.trials + 1):
            trials = {name: planned_trial(tuning, study, name, number) for name, study in studies.items()}
            known += [run for trial in trials.values() for run in trial.runs]
            lay_out(tuning.trial_comparison(known))
            new = {name: trial for name, trial in trials.items() if number > len(studies[name].trials)}
            failures = run_processes.work([run for trial in new.values() for run in trial.runs])
            if of_the_disk := [reason for reason in failures.values() if any(error in reason for error in DISK)]:
                raise RecordError(f"{of_the_disk[0]}. No trial is to blame: free the disk, then repeat the command.")
            for name, trial in new.items():
                failed = trial.refused or "; ".join(failures[run.name] for run in trial.runs if run.name in failures)
                value = None if failed else mean_value(trial.runs, goal.key, higher_wins=goal.higher_wins)
                inside = all(one.holds(trial.settings[key]) for key, one in tuning.spaces[name].items())
                studies[name].add(trial.settings, value, failed, inside=inside)
                shown = f"failed, {failed}" if value is None else f"{goal.name} {value:.4g}"
                line = f"{name}, trial {number} of {tuning.trials} ({settings_text(trial.settings)}): {shown}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    return {
        name: best_trial(study, name, tuning.trials, higher_wins=goal.higher_wins) for name, study in studies.items()
    }


def planned_trial(tuning: Tuning, study: MethodStudy, strategy: str, number: int) -> Trial:
    """Trial `number` of a method: its stored settings or, for a new trial, the defaults (1) or a suggestion (> 1)."""
    if number <= len(study.trials):
        settings = dict(study.trials[number - 1].user_attrs["settings"])
    else:
        settings = study.suggest(number) if number > 1 else tuning.defaults(strategy)
    try:
        return Trial(settings, tuning.trial_runs(strategy, number, settings))
    except ConfigError as error:
        return Trial(settings, (), str(error))


def mean_value(runs: Sequence[PlannedRun], key: str, *, higher_wins: bool) -> float:
    """Mean of a measure over finished runs; the worst number, infinite, if a run does not have the measure."""
    summaries = [read_summary(run.folder) or {} for run in runs]
    values = [float(summary[key]) for summary in summaries if summary.get(key) is not None]
    if len(values) < len(runs):
        return -math.inf if higher_wins else math.inf
    return statistics.fmean(values)


def best_trial(study: MethodStudy, strategy: str, count: int, *, higher_wins: bool) -> BestTrial:
    """The best of the first `count` trials of a method, the earliest among equals.

    Raises ConfigError if all of them failed.
    """
    trials = study.trials[:count]
    values = [trial.value for trial in trials]
    sign = -1.0 if higher_wins else 1.0
    ranked = [(sign * value, number) for number, value in enumerate(values, start=1) if value is not None]
    failures = {
        str(trial.number + 1): str(trial.user_attrs[FAILURE]) for trial in trials if FAILURE in trial.user_attrs
    }
    if not ranked:
        raise ConfigError(f"All trials of {strategy} failed. The first: {next(iter(failures.values()))}")
    number = min(ranked)[1]
    settings = dict(trials[number - 1].user_attrs["settings"])
    return BestTrial(trial=number, settings=settings, values=values, failures=failures)


def write_preset(tuning: Tuning, best: dict[str, BestTrial]) -> Path:
    """Write tuned.toml: a preset with the settings of all runs and those of each method's best trial."""
    path = tuning.out / PRESET
    shared = {key: value for key, value in tuning.base.settings.items() if key != "preset"}
    base = {"base": str(tuning.base.settings["preset"])} if tuning.base.settings.get("preset") else {}
    methods = {name: one["settings"] for name, one in best.items()}
    preset = {**base, "strategies": list(tuning.base.strategies), **shared, "methods": methods}
    write_text(path, f"# Best of {tuning.trials} trials of each method\n{tomli_w.dumps(preset)}")
    return path
