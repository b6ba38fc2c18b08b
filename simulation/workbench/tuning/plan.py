"""Plan of a tuning: the runs of each trial, and the comparison that follows on other seeds."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError, Value
from fedsel_app.data.dataset import load
from fedsel_app.models.device import choose_device
from fedsel_app.records.files import write_json
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.idle_settings import owners, refuse_idle
from fedsel_app.wiring.server import find_score, make_model
from simulation.workbench.comparison.measures import Measure
from simulation.workbench.comparison.plan import ComparisonPlan, PlannedRun
from simulation.workbench.comparison.plan_table import left_text
from simulation.workbench.comparison.tuning_file import (
    CELL,
    DEFAULT,
    NAME,
    TUNED,
    VALIDATION,
    VERSION,
    BestTrial,
    goal_of,
    read_tuning,
)
from simulation.workbench.tuning.space import Range, ends, parse_space, range_text
from strategies import find_strategy

VALIDATION_FRACTION = 0.1
"""Share of the training examples on which trials are ranked, unless the comparison sets its own."""


@dataclass(frozen=True)
class Tuning:
    """Plan of a tuning.

    Attributes
    ----------
    base : comparison of the methods with their default settings
    trials : number of trials of each method, including the one with the default settings
    tuning_seeds : seeds of the trials' runs; none of them is a seed of `base`
    spaces : strategy -> setting key -> range, for its tuned settings
    goal : measure whose mean over the tuning seeds ranks the trials
    """

    base: ComparisonPlan
    trials: int
    tuning_seeds: Sequence[int]
    spaces: Mapping[str, Mapping[str, Range]]
    goal: Measure

    @property
    def out(self) -> Path:
        """Folder of the tuning, and of the comparison that follows."""
        return self.base.out

    @property
    def over(self) -> dict[str, str]:
        """Setting key -> text of its range."""
        return {key: range_text(values) for space in self.spaces.values() for key, values in space.items()}

    def defaults(self, strategy: str) -> dict[str, Value]:
        """Values of a strategy's tuned settings in its runs of `base`."""
        values = first_run(self.base, strategy).config.values()
        return {key: values[key] for key in self.spaces[strategy]}

    def trial_runs(self, strategy: str, number: int, settings: Mapping[str, Value]) -> list[PlannedRun]:
        """Runs of the trial `number` >= 1, one per tuning seed. Raises ConfigError for invalid `settings`."""
        run, cell = first_run(self.base, strategy), {"trial": number}
        settings = {**self.validated, **settings}
        return [
            changed_run(run, self.out / "trials", f"trial={number}", seed, settings, cell) for seed in self.tuning_seeds
        ]

    @property
    def validated(self) -> dict[str, Value]:
        """Settings of trials that are ranked on a validation set, if the comparison has none."""
        fraction = self.base.runs[0].config.partition.validation_fraction
        return {} if fraction or VALIDATION not in self.goal.key else {"validation-fraction": VALIDATION_FRACTION}

    def trial_comparison(self, runs: Sequence[PlannedRun]) -> ComparisonPlan:
        """Comparison of the trials' `runs` so far, in its own folder."""
        grid = {"trial": list(range(1, self.trials + 1))}
        return replace(self.base, out=self.out / "trials", seeds=self.tuning_seeds, grid=grid, runs=runs)

    def comparison(self, best: Mapping[str, BestTrial]) -> ComparisonPlan:
        """Comparison of the default settings with the best of each method, on the seeds of `base`."""
        runs = []
        for run in self.base.runs:
            one = best[run.strategy]
            runs.append(changed_run(run, self.out, DEFAULT, run.seed, {}, {CELL: DEFAULT}))
            label = f"{TUNED}-trial={one['trial']}"
            runs.append(changed_run(run, self.out, label, run.seed, one["settings"], {CELL: TUNED}))
        return replace(self.base, grid={CELL: [DEFAULT, TUNED]}, runs=runs)

    def write(self, best: Mapping[str, BestTrial] | None = None) -> None:
        """Write tuning.json, with the best trial of each method once it is known."""
        write_json(self.out / NAME, self._content() | ({"best": best} if best else {}))

    def lines(self, jobs: int) -> list[str]:
        """Lines on the plan: trials, ranges, runs; with the time left, if a run is finished."""
        count = len(self.base.strategies)
        trials, compared = self.trials * count * len(self.tuning_seeds), 2 * count * len(self.base.seeds)
        finished = [path.parent for path in self.out.glob("**/runs/*/summary.json")]
        return [
            f"{self.trials} trials each of {', '.join(self.base.strategies)}, the first with the default settings.",
            *(f"{key}: {text}" for key, text in self.over.items()),
            f"Ranked by: {self.goal.name}, mean over the seeds {', '.join(map(str, self.tuning_seeds))}.",
            *(f"Set for the trials only: {key}={value}." for key, value in self.validated.items()),
            f"Runs: {trials} of trials, then {compared} with default and tuned settings "
            f"on the seeds {', '.join(map(str, self.base.seeds))}.",
            f"Side by side: {jobs}{left_text(finished, trials + compared - len(finished), jobs)}",
        ]

    def check(self) -> None:
        """Raise ConfigError if the folder has another comparison or another tuning, or if a run would be refused.

        The number of trials of a tuning may change.
        """
        earlier = read_tuning(self.out)
        if earlier is None:
            self.base.check()
        self.trial_comparison([]).check()
        for key, value in self._content().items():
            if earlier is not None and key != "trials" and earlier.get(key) != value:
                raise ConfigError(
                    f"The folder {self.out} has a tuning with '{key}' = {earlier.get(key)!r}, not {value!r}. "
                    "Choose another --out."
                )

    def _content(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "strategies": list(self.base.strategies),
            "trials": self.trials,
            "tuning_seeds": list(self.tuning_seeds),
            "over": dict(self.over),
            "metric": self.goal.key,
            "settings": dict(self.base.settings),
        }


def first_run(comparison: ComparisonPlan, strategy: str) -> PlannedRun:
    """The first run of a strategy in a comparison."""
    return next(run for run in comparison.runs if run.strategy == strategy)


def changed_run(
    run: PlannedRun, out: Path, label: str, seed: int, settings: Mapping[str, Value], cell: Mapping[str, Value]
) -> PlannedRun:
    """`run` with another seed and other `settings`, in the comparison folder `out`; `label` is part of its name.

    Raises ConfigError for invalid settings.
    """
    name = f"{run.strategy}-{label}-s{seed}"
    folder = out / "runs" / name
    config = resolve({**run.config.values(), **settings, "seed": seed, "out": str(folder)})
    return PlannedRun(name, run.strategy, seed, cell, folder, config)


def plan_tuning(base: ComparisonPlan, trials: int, tuning_seeds: Sequence[int], over: str, goal: str) -> Tuning:
    """Plan a tuning of the methods of `base`, and the comparison on its seeds that follows.

    Raises ConfigError if a seed is in `tuning_seeds` and in `base`, a range is invalid, a method has no setting of
    `over`, no run reads one of them, the runs do not have the `goal`, or the data are not available.
    """
    if both := sorted({*tuning_seeds} & {*base.seeds}):
        raise ConfigError(
            f"--tuning-seeds and --seeds must have no seed in common. Both have {', '.join(map(str, both))}."
        )
    methods = {name: find_strategy(name) for name in base.strategies}
    space = parse_space(over, list(methods.values()))
    for key in space:
        if key in base.settings:
            raise ConfigError(f"'{key}' is in --over and is also set for all methods: remove one of the two.")
    spaces, combinations = {}, list[dict[str, Value]]()
    for name in methods:
        values = first_run(base, name).config.values()
        spaces[name] = {key: one for key, one in space.items() if key in values}
        deciding = [key for key in spaces[name] if key in owners(spaces[name], name)]
        cells = itertools.product(*(ends(spaces[name][key]) for key in deciding))
        combinations += [values | dict(zip(deciding, cell, strict=True)) for cell in cells]
        if not spaces[name]:
            raise ConfigError(f"{name} has none of the settings of --over, so all its trials would be the same.")
    refuse_idle(space, combinations)
    config = base.runs[0].config
    model = make_model(config, choose_device(config.execution.device))
    measure = goal_of(goal, find_score(config, model, load(config.data, config.run.seed)))
    tuning = Tuning(base, trials, list(dict.fromkeys(tuning_seeds)), spaces, measure)
    for name, ranges in spaces.items():
        for key, end in ((key, end) for key, values in ranges.items() for end in ends(values)):
            try:
                tuning.trial_runs(name, 1, {key: end})
            except ConfigError as error:
                text = range_text(ranges[key])
                raise ConfigError(f"{name} does not allow the whole range of '{key}', {text}: {error}") from error
    return tuning
