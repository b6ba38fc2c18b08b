"""Plan of a tuning: the trials of all methods as one comparison, and the comparison that follows on other seeds."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy.stats import qmc

from fedsel_app.config import ConfigError, Value, refuse_unknown
from fedsel_app.records.files import write_json
from fedsel_app.wiring.configuration import resolve, setting_entries
from simulation.engines.idle_settings import refuse_idle
from simulation.workbench.command_line.parser import parse_setting
from simulation.workbench.comparison.plan import ComparisonPlan, PlannedRun, left_text, run_name
from simulation.workbench.comparison.plan_files import (
    CELL,
    DEFAULT,
    TUNED,
    TUNING_FILE,
    TUNING_VERSION,
    BestTrial,
    read_tuning,
    settings_text,
)
from strategies import find_strategy
from strategies.base import SelectionStrategy

VALIDATION_FRACTION = 0.1
"""Share of the training examples on which trials are ranked, unless the comparison sets its own."""
SEED = 0
"""Seed of the sequence of trials, the same for every tuning."""


LOG_RATIO = 10.0
"""Least ratio of an interval's ends for which values are drawn on a log scale."""


@dataclass(frozen=True)
class Choices:
    """Values of a setting that were listed."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))

    def at(self, place: float) -> Value:
        """The value at the `place`, in [0, 1)."""
        return self.values[int(place * len(self.values))]


@dataclass(frozen=True)
class Interval:
    """Interval of numbers with both ends; `whole`: only its integers."""

    low: float
    high: float
    whole: bool

    @property
    def log(self) -> bool:
        """True if values are drawn on a log scale."""
        return self.low > 0.0 and self.high / self.low >= LOG_RATIO

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" + (", on a log scale" if self.log else "")

    def at(self, place: float) -> Value:
        """The value at the `place`, in [0, 1)."""
        low, high = self.low, self.high + self.whole
        value = low * (high / low) ** place if self.log else low + place * (high - low)
        return min(math.floor(value), int(self.high)) if self.whole else value


Range = Choices | Interval


def parse_space(text: str, methods: Iterable[type[SelectionStrategy]]) -> dict[str, Range]:
    """Parse ``KEY=LOW..HIGH`` and ``KEY=A|B``, separated by commas, into setting key -> range.

    Raises ConfigError for a setting that is unknown or defines the task, and for an invalid range.
    """
    entries = [*setting_entries(), *(entry for method in methods for entry in method.Config.entries(f"{method.name}."))]
    entry_of = {entry.key: entry for entry in entries}
    space: dict[str, Range] = {}
    for part in text.split(","):
        key, _, values = (word.strip() for word in part.partition("="))
        refuse_unknown([key], entry_of)
        if not entry_of[key].scope.tuned:
            raise ConfigError(f"--over takes settings of methods; '{key}' defines the task, which is the same for all.")
        space[key] = parse_range(key, values, entry_of[key].default)
    return space


def parse_range(key: str, text: str, default: Value) -> Range:
    """Parse a range of the form LOW..HIGH or A|B|C. Raises ConfigError for anything else."""
    if "|" in text:
        return Choices(tuple(parse_setting(f"{key}={choice.strip()}")[1] for choice in text.split("|")))
    try:
        low, high = (float(end) for end in text.split(".."))
    except ValueError:
        low = high = math.nan
    if isinstance(default, bool | str) or not (math.isfinite(low) and low < high < math.inf):
        raise ConfigError(f"--over takes {key}=LOW..HIGH, or {key}=A|B. Got {key}{text and f'={text}'}.")
    return Interval(low, high, isinstance(default, int))


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
        write_json(self.out / TUNING_FILE, self._content() | ({"best": best} if best else {}))

    def lines(self, jobs: int) -> list[str]:
        """Lines on the plan: trials, ranges, runs and the time left."""
        compared = [*self.base.runs, *self.base.runs]
        runs = [*self.trials.runs, *compared]
        finished = [path.parent for path in self.out.glob("**/runs/*/summary.json")]
        return [
            f"{self.count} trials each of {', '.join(self.base.strategies)}, the first with the default settings.",
            *(f"{key}: {values}" for key, values in self.over.items()),
            f"Runs: {len(self.trials.runs)} of trials on the seeds {', '.join(map(str, self.tuning_seeds))}, then "
            f"{len(compared)} with default and tuned settings on the seeds {', '.join(map(str, self.base.seeds))}.",
            f"Side by side: {jobs}{left_text(finished, runs[len(finished) :], jobs)}",
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
            "version": TUNING_VERSION,
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
