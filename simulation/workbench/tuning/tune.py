"""Execution of a tuning (`fedsel tune`): the trials of all methods, then the best trial of each on other seeds.

The first trial of each method has its default settings, so the best is never worse than these on the tuning seeds.
Runs are carried out as in `fedsel compare`. Optuna's storage has a study of each method, which gets a trial when it has
a value or has failed. The settings of trial n follow from n, the seed and the earlier trials. So the same command
completes a tuning that was killed, with the same trials.
"""

import errno
import math
import os
import statistics
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import optuna
import tomli_w
from optuna.trial import FrozenTrial, TrialState, create_trial
from rich.console import Console

from fedsel_app.config import DECLARED, ConfigError, Value
from fedsel_app.config.data import DATA_FOLDERS
from fedsel_app.records.fedsel_folder import make_private_folder
from fedsel_app.records.files import RecordError, write_text
from fedsel_app.wiring.configuration import AppConfig, known_defaults
from fedsel_app.wiring.idle_settings import is_idle
from fedsel_app.wiring.server import FILES
from simulation.engines import processes
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.plan import ComparisonPlan, PlannedRun
from simulation.workbench.comparison.run_processes import RunProcesses, carry_out, lay_out, locked_comparison
from simulation.workbench.comparison.tuning_file import CELL, TUNED, BestTrial, settings_text
from simulation.workbench.tuning.plan import Tuning
from simulation.workbench.tuning.space import Range, holds

STORAGE, PRESET = "tuning.db", "tuned.toml"
SETTINGS, FAILURE = "settings", "failure"
"""User attributes of a stored trial."""
RANDOM_TRIALS = 5
"""Number of completed trials that the sampler's model needs. Until then the sampler draws settings at random."""
DISK = tuple(map(os.strerror, (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)))
"""Errors for which no settings are to blame: a trial that ends with one is carried out again, and is no failed one."""


def run_tuning(tuning: Tuning, jobs: int, console: Console) -> dict[str, str]:
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
        trials = finished_trials(tuning, jobs, console)
        best = {name: best_trial(name, trials[name], higher_wins=tuning.goal.higher_wins) for name in trials}
        tuning.write(best)
        comparison = tuning.comparison(best)
        write_preset(tuning, comparison)
    comparison.check()
    return carry_out(comparison, jobs, console)


def finished_trials(tuning: Tuning, jobs: int, console: Console) -> dict[str, list[FrozenTrial]]:
    """Carry out the missing trials, number by number for all methods at once. Returns the trials of each method."""
    goal, planned = tuning.goal, list[PlannedRun]()
    studies = {name: open_study(tuning, name) for name in tuning.spaces}
    trials = {name: study.get_trials(deepcopy=False)[: tuning.trials] for name, study in studies.items()}
    with RunProcesses(tuning.out / "trials", jobs, console) as run_processes:
        for number in range(1, tuning.trials + 1):
            new = [name for name in trials if len(trials[name]) < number]
            runs, settings, failures = list[PlannedRun](), dict[str, dict[str, Value]](), dict[str, str]()
            for name, stored in trials.items():
                settings[name] = suggestion(tuning, name, stored) if name in new else settings_of(stored[number - 1])
                try:
                    runs += tuning.trial_runs(name, number, settings[name])
                except ConfigError as error:
                    failures[name] = str(error)
            planned += runs
            lay_out(tuning.trial_comparison(planned))
            later = (tuning.trials - number) * len(trials) * len(tuning.tuning_seeds)
            failed = run_processes.work([run for run in runs if run.strategy in new], later)
            if of_the_disk := [reason for reason in failed.values() if any(error in reason for error in DISK)]:
                raise RecordError(f"{of_the_disk[0]}. No trial is to blame: free the disk, then repeat the command.")
            for name in new:
                trial_runs = [run for run in runs if run.strategy == name]
                failure = failures.get(name) or "; ".join(failed[run.name] for run in trial_runs if run.name in failed)
                value = None if failure else mean_value(trial_runs, goal.key, higher_wins=goal.higher_wins)
                studies[name].add_trial(trial_of(settings[name], tuning.spaces[name], value, failure))
                trials[name] = studies[name].get_trials(deepcopy=False)
                outcome = f"failed, {failure}" if value is None else f"{goal.name} {value:.4g}"
                line = f"{name}, trial {number} of {tuning.trials} ({settings_text(settings[name])}): {outcome}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    return trials


def settings_of(trial: FrozenTrial) -> dict[str, Value]:
    """The settings of a stored trial."""
    return dict(trial.user_attrs[SETTINGS])


def open_study(tuning: Tuning, strategy: str) -> optuna.Study:
    """The study of a method in the storage of the tuning's folder."""
    with warnings.catch_warnings(action="ignore"):
        return optuna.create_study(
            storage=f"sqlite:///{tuning.out / STORAGE}",
            study_name=strategy,
            direction="maximize" if tuning.goal.higher_wins else "minimize",
            load_if_exists=True,
        )


def suggestion(tuning: Tuning, strategy: str, trials: Sequence[FrozenTrial]) -> dict[str, Value]:
    """Settings of the trial after these: the defaults for the first, then those that the sampler suggests.

    The study in memory makes the suggestion a function of its arguments: a killed process leaves no half trial behind.
    """
    if not trials:
        return tuning.defaults(strategy)
    space = tuning.spaces[strategy]
    sampler = optuna.samplers.TPESampler(
        seed=min(tuning.tuning_seeds) + len(trials) + 1, n_startup_trials=RANDOM_TRIALS
    )
    with warnings.catch_warnings(action="ignore"):
        study = optuna.create_study(sampler=sampler, direction="maximize" if tuning.goal.higher_wins else "minimize")
        study.add_trials([trial for trial in trials if trial.params.keys() == space.keys()])
        return dict(study.ask(dict(space)).params)


def trial_of(
    settings: Mapping[str, Value], space: Mapping[str, Range], value: float | None, failure: str
) -> FrozenTrial:
    """A trial with its value or failure. The sampler learns only from settings inside the space."""
    inside = all(holds(values, settings[key]) for key, values in space.items())
    return create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        value=value,
        params=dict(settings) if inside else {},
        distributions=dict(space) if inside else {},
        user_attrs={SETTINGS: dict(settings)} | ({FAILURE: failure} if failure else {}),
    )


def mean_value(runs: Sequence[PlannedRun], key: str, *, higher_wins: bool) -> float:
    """Mean of a measure over finished runs; the worst number, infinite, if a run does not have the measure."""
    summaries = [read_summary(run.folder) or {} for run in runs]
    values = [float(summary[key]) for summary in summaries if summary.get(key) is not None]
    if len(values) < len(runs):
        return -math.inf if higher_wins else math.inf
    return statistics.fmean(values)


def best_trial(strategy: str, trials: Sequence[FrozenTrial], *, higher_wins: bool) -> BestTrial:
    """The best trial of a method, the earliest among equals. Raises ConfigError if all of them failed."""
    attributes = {str(number): trial.user_attrs for number, trial in enumerate(trials, start=1)}
    failures = {number: str(entries[FAILURE]) for number, entries in attributes.items() if FAILURE in entries}
    if len(failures) == len(trials):
        raise ConfigError(f"All trials of {strategy} failed. The first: {failures['1']}")
    values = [trial.value for trial in trials]
    best = (max if higher_wins else min)(value for value in values if value is not None)
    index = values.index(best)
    return BestTrial(trial=index + 1, settings=settings_of(trials[index]), values=values, failures=failures)


def write_preset(tuning: Tuning, comparison: ComparisonPlan) -> None:
    """Write tuned.toml: a preset of the tuned runs of `comparison`, which needs no other file of settings.

    It has the tuned settings, and those that differ from their defaults. Paths are absolute. It only names a user's
    code.
    """
    runs = {run.strategy: stated(run.config, tuning.over) for run in comparison.runs if run.cell[CELL] == TUNED}
    common = set.intersection(*(set(values.items()) for values in runs.values()))
    shared = {key: value for key, value in common if key not in tuning.over}
    methods = {name: {key: values[key] for key in values if key not in shared} for name, values in runs.items()}
    preset = {"strategies": list(runs), **dict(sorted(shared.items())), "methods": methods}
    comment = f"# Best of {tuning.trials} trials of each method"
    write_text(tuning.out / PRESET, f"{comment}\n{tomli_w.dumps(preset)}")


def stated(config: AppConfig, always: Collection[str]) -> dict[str, Value]:
    """Settings that a run reads and that a preset of it must state: those of `always`, and values that are no defaults.

    A comparison sets the rest itself: the strategy, the seed and the folder.
    """
    values, method = config.values(), config.strategy
    defaults = known_defaults() | method.Config().values(f"{method.name}.")
    settings = {
        key: value
        for key, value in values.items()
        if (key in always or value != defaults[key])
        and not (key in DECLARED and DECLARED[key].own)
        and not is_idle(key, values)
    }
    paths = {key: str(Path(str(settings[key])).absolute()) for key in ("data-path", *FILES) if key in settings}
    folder = {"data-path": str(config.data.folder)} if config.data.data in DATA_FOLDERS else {}
    return settings | paths | folder
