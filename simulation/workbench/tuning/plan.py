"""Plan of a tuning: the trials of all methods as one comparison, and the comparison that follows on other seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import qmc

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.files import write_json
from fedsel_app.wiring.configuration import resolve
from fedsel_app.wiring.idle_settings import refuse_idle
from simulation.workbench.comparison.plan import ComparisonPlan, PlannedRun, run_name
from simulation.workbench.comparison.plan_lines import left_text
from simulation.workbench.comparison.tuning_file import (
    CELL,
    DEFAULT,
    NAME,
    TUNED,
    VERSION,
    BestTrial,
    read_tuning,
    settings_text,
)
from simulation.workbench.tuning.space import Range, parse_space
from strategies import find_strategy

VALIDATION_FRACTION = 0.1
"""Share of the training examples on which trials are ranked, unless the comparison sets its own."""
SEED = 0
"""Seed of the sequence of trials, the same for every tuning."""


@dataclass(frozen=True)
class Tuning:
    """Plan of a tuning.

    Attributes
    ----------
    base : comparison of the methods with their default settings
    tuning_seeds : seeds of the trials' runs; none of them is a seed of `base`
    over : setting key -> range, for the settings that are tuned
    settings : strategy -> settings of its trials, those with the default settings first
    trials : the runs of all trials, as a comparison in its own folder; a run's cell has the number of its trial
    """

    base: ComparisonPlan
    tuning_seeds: Sequence[int]
    over: Mapping[str, Range]
    settings: Mapping[str, Sequence[Mapping[str, Value]]]
    trials: ComparisonPlan

    @property
    def out(self) -> Path:
        """Folder of the tuning, and of the comparison that follows."""
        return self.base.out

    @property
    def count(self) -> int:
        """Number of trials of each method."""
        return len(self.settings[self.base.strategies[0]])

    def comparison(self, best: Mapping[str, BestTrial]) -> ComparisonPlan:
        """Comparison of the default settings with the best of each method, on the seeds of `base`."""
        runs = []
        for run in self.base.runs:
            one = best[run.strategy]
            runs.append(changed_run(run, self.out, {CELL: DEFAULT}, run.seed, {}))
            named: dict[str, Value] = {CELL: TUNED, "trial": one["trial"]}
            runs.append(changed_run(run, self.out, named, run.seed, one["settings"]))
        runs = [replace(run, cell={CELL: run.cell[CELL]}) for run in runs]
        return replace(self.base, grid={CELL: [DEFAULT, TUNED]}, runs=runs)

    def write(self, best: Mapping[str, BestTrial] | None = None) -> None:
        """Write tuning.json, with the best trial of each method once it is known."""
        write_json(self.out / NAME, self._content() | ({"best": best} if best else {}))

    def lines(self, jobs: int) -> list[str]:
        """Lines on the plan: trials, ranges, runs; with the time left, if a run is finished."""
        trials, compared = len(self.trials.runs), 2 * len(self.base.runs)
        finished = [path.parent for path in self.out.glob("**/runs/*/summary.json")]
        return [
            f"{self.count} trials each of {', '.join(self.base.strategies)}, the first with the default settings.",
            *(f"{key}: {values}" for key, values in self.over.items()),
            f"Runs: {trials} of trials on the seeds {', '.join(map(str, self.tuning_seeds))}, then {compared} with "
            f"default and tuned settings on the seeds {', '.join(map(str, self.base.seeds))}.",
            f"Side by side: {jobs}{left_text(finished, trials + compared - len(finished), jobs)}",
        ]

    def check(self) -> None:
        """Raise ConfigError if the folder has another comparison or another tuning, or if a run would be refused.

        The number of trials of a tuning may change.
        """
        earlier = read_tuning(self.out)
        for key, value in self._content().items():
            if earlier is not None and key != "trials" and earlier.get(key) != value:
                raise ConfigError(
                    f"The folder {self.out} has a tuning with '{key}' = {earlier.get(key)!r}, not {value!r}. "
                    "Choose another --out."
                )
        if earlier is None:
            self.base.check()
        self.trials.check()

    def _content(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "strategies": list(self.base.strategies),
            "trials": self.count,
            "tuning_seeds": list(self.tuning_seeds),
            "over": {key: str(values) for key, values in self.over.items()},
            "settings": dict(self.base.settings),
        }


def changed_run(
    run: PlannedRun, out: Path, cell: Mapping[str, Value], seed: int, settings: Mapping[str, Value]
) -> PlannedRun:
    """`run` with another seed and other `settings`, in a `cell` of the comparison in the folder `out`.

    Raises ConfigError for invalid settings.
    """
    name = run_name(run.strategy, cell, seed)
    folder = out / "runs" / name
    config = resolve({**run.config.values(), **settings, "seed": seed, "out": str(folder)})
    return PlannedRun(name, run.strategy, seed, cell, folder, config)


def plan_tuning(base: ComparisonPlan, trials: int, tuning_seeds: Sequence[int], over: str) -> Tuning:
    """Plan a tuning of the methods of `base`, and the comparison on its seeds that follows.

    Raises ConfigError if a seed is in `tuning_seeds` and in `base`, a range is invalid, a method has no setting of
    `over`, no run reads one of them, or the settings of a trial are refused.
    """
    if both := sorted({*tuning_seeds} & {*base.seeds}):
        raise ConfigError(
            f"--tuning-seeds and --seeds must have no seed in common. Both have {', '.join(map(str, both))}."
        )
    space = parse_space(over, [find_strategy(name) for name in base.strategies])
    for key in space:
        if key in base.settings:
            raise ConfigError(f"'{key}' is in --over and is also set for all methods: remove one of the two.")
    settings = trial_settings(base, space, trials)
    validated = base.runs[0].config.partition.validation_fraction
    trial_only = {} if validated else {"validation-fraction": VALIDATION_FRACTION}
    seeds, runs = list(dict.fromkeys(tuning_seeds)), list[PlannedRun]()
    for run in base.runs[: len(base.strategies)]:
        for number, own in enumerate(settings[run.strategy], start=1):
            try:
                runs += [
                    changed_run(run, base.out / "trials", {"trial": number}, seed, trial_only | own) for seed in seeds
                ]
            except ConfigError as error:
                raise ConfigError(f"{run.strategy} cannot have {settings_text(own)} of --over: {error}") from error
    refuse_idle(space, [run.config.values() for run in runs])
    grid = {"trial": list(range(1, trials + 1))}
    comparison = replace(base, out=base.out / "trials", seeds=seeds, grid=grid, runs=runs)
    return Tuning(base, seeds, space, settings, comparison)


def trial_settings(base: ComparisonPlan, space: Mapping[str, Range], trials: int) -> dict[str, list[dict[str, Value]]]:
    """Strategy -> settings of its trials, those of the `space` that it has. The first trial has the default settings.

    The others have the values at the points of a scrambled Halton sequence, which covers the ranges evenly. A larger
    number of trials has the same first ones.

    Raises ConfigError if a strategy has no setting of the space.
    """
    points = qmc.Halton(len(space), seed=SEED).random(trials - 1).tolist()
    drawn = [{key: values.at(place) for (key, values), place in zip(space.items(), at, strict=True)} for at in points]
    settings = {}
    for run in base.runs[: len(base.strategies)]:
        values = run.config.values()
        if not space.keys() & values.keys():
            raise ConfigError(f"{run.strategy} has none of the settings of --over, so all its trials would be alike.")
        settings[run.strategy] = [{key: of[key] for key in space if key in values} for of in (values, *drawn)]
    return settings
