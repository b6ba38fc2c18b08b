"""Execution of a tuning (`fedsel tune`): the trials of all methods, then the best trial of each on other seeds.

The first trial of each method has its default settings, so the best is never worse than these on the tuning seeds.
Trials and comparison are carried out as in `fedsel compare`, so the same command completes a tuning that was killed.
"""

import errno
import math
import os
import statistics
from collections.abc import Collection, Mapping
from pathlib import Path

import tomli_w
from rich.console import Console

from fedsel_app.config import DECLARED, ConfigError, Value
from fedsel_app.config.data import DATA_FOLDERS
from fedsel_app.config.run import lower_wins
from fedsel_app.records.fedsel_folder import make_private_folder
from fedsel_app.records.files import RecordError, write_text
from fedsel_app.records.schema import score_name
from fedsel_app.wiring.configuration import AppConfig, known_defaults
from fedsel_app.wiring.named_files import FILES
from simulation.engines.idle_settings import is_idle
from simulation.engines.run_folders import read_summary
from simulation.workbench.comparison.plan import ComparisonPlan
from simulation.workbench.comparison.plan_files import CELL, TUNED, BestTrial, settings_text
from simulation.workbench.comparison.run_processes import carry_out
from simulation.workbench.tuning.plan import Tuning

PRESET = "tuned.toml"
DISK = tuple(map(os.strerror, (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)))
"""Errors for which no settings are to blame: a trial that ends with one is carried out again, and is no failed one."""


def run_tuning(tuning: Tuning, jobs: int, console: Console) -> dict[str, str]:
    """Carry out the missing trials, then compare the default settings with the best of each method.

    Returns the name of each failed run of the comparison -> the reason. Raises ConfigError if another process carries
    out the same tuning, or all trials of a method failed. Raises RecordError if the disk of a trial failed.
    """
    make_private_folder(tuning.out)
    tuning.write()
    failed = carry_out(tuning.trials, jobs, console)
    if of_the_disk := [reason for reason in failed.values() if any(error in reason for error in DISK)]:
        raise RecordError(f"{of_the_disk[0]}. No trial is to blame: free the disk, then repeat the command.")
    best = {name: best_trial(tuning, name, failed) for name in tuning.base.strategies}
    tuning.write(best)
    for name, of in best.items():
        value = of["values"][of["trial"] - 1]
        line = f"{name}: trial {of['trial']} is the best, {settings_text(of['settings'])}: {value:.4g}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    comparison = tuning.comparison(best)
    write_preset(tuning, comparison)
    comparison.check()
    return carry_out(comparison, jobs, console)


def best_trial(tuning: Tuning, strategy: str, failed: Mapping[str, str]) -> BestTrial:
    """The best trial of a method by the mean score on the validation set, the earliest among equals.

    `failed` has the failed runs with their reasons. Raises ConfigError if all trials failed.
    """
    values: list[float | None] = []
    failures: dict[str, str] = {}
    sign = 1.0
    for number in range(1, tuning.count + 1):
        runs = [run for run in tuning.trials.runs if (run.strategy, run.cell["trial"]) == (strategy, number)]
        reasons = [failed[run.name] for run in runs if run.name in failed]
        summaries = [read_summary(run.folder) or {} for run in runs]
        score = score_name(summaries[0])
        sign = -1.0 if lower_wins(score) else 1.0
        scores = [summary.get(f"stable_validation_{score}") for summary in summaries]
        finite = [value for value in scores if value is not None and math.isfinite(value)]
        missing = bool(reasons) or len(finite) < len(runs)
        values.append(None if missing else statistics.fmean(finite))
        if missing:
            failures[str(number)] = "; ".join(reasons) or "a run has no score on its validation set"
    ranked = [(sign * value, -index) for index, value in enumerate(values) if value is not None]
    if not ranked:
        raise ConfigError(f"All trials of {strategy} failed. The first: {failures['1']}")
    index = -max(ranked)[1]
    settings = dict(tuning.settings[strategy][index])
    return BestTrial(trial=index + 1, settings=settings, values=values, failures=failures)


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
    comment = f"# Best of {tuning.count} trials of each method"
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
