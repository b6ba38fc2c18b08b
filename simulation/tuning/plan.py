"""Plan of a tuning: its runs of each trial, and the comparison that follows on other seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.files import write_json
from simulation.comparison.measures import (
    ACCURACY,
    CLIENT_UPDATES,
    ROUNDS,
    SECONDS,
    UPLINK_MB,
    EvaluatedMetric,
    Measure,
)
from simulation.comparison.plan import Comparison, PlannedRun
from simulation.experiments.configuration import resolve
from simulation.tuning.space import Range, parse_space
from simulation.tuning.tuning_file import CELL, DEFAULT, NAME, TUNED, VERSION, Best, read_tuning
from strategies import find_strategy

SCORE = EvaluatedMetric(ACCURACY, ACCURACY)
GOALS: dict[str, Measure] = {
    measure.key: measure for measure in (SCORE.stable, SCORE.final, ROUNDS, SECONDS, UPLINK_MB, CLIENT_UPDATES)
}
"""Measures that trials can be ranked by, by their keys in summary.json."""


@dataclass(frozen=True)
class Tuning:
    """Plan of a tuning.

    Attributes
    ----------
    base : comparison of the default settings on the seeds that report
    trials : number of trials of each method, the default settings included
    tuning_seeds : seeds of the trials' runs; none of them reports
    spaces : strategy -> range of each of its settings that is tuned
    over : text of each range
    goal : measure that trials are ranked by, its mean over the tuning seeds
    """

    base: Comparison
    trials: int
    tuning_seeds: Sequence[int]
    spaces: Mapping[str, Mapping[str, Range]]
    over: Mapping[str, str]
    goal: Measure

    @property
    def out(self) -> Path:
        """Folder of the tuning, and of the comparison that follows."""
        return self.base.out

    def defaults(self, strategy: str) -> dict[str, Value]:
        """Values of the tuned settings that the runs of a strategy have otherwise."""
        config = next(run.config for run in self.base.runs if run.strategy == strategy)
        values = config.values()
        return {key: values[key] for key in self.spaces[strategy]}

    def trial_runs(self, strategy: str, number: int, settings: Mapping[str, Value]) -> list[PlannedRun]:
        """Runs of the trial `number`, from 1, one a tuning seed; ConfigError if no run may have `settings`."""
        out, cell = self.out / "trials", {"trial": number}
        return [
            self._run(out, f"{strategy}-trial={number}-s{seed}", strategy, seed, settings, cell)
            for seed in self.tuning_seeds
        ]

    def trial_comparison(self, runs: Sequence[PlannedRun]) -> Comparison:
        """The trials' runs so far as a comparison of their own."""
        grid = {"trial": list(range(1, self.trials + 1))}
        return self._comparison(self.out / "trials", runs, self.tuning_seeds, grid)

    def comparison(self, best: Mapping[str, Best]) -> Comparison:
        """Comparison of the default settings with the best of each method, on the seeds that report."""
        runs = []
        for run in self.base.runs:
            one = best[run.strategy]
            for cell, label, settings in (
                (DEFAULT, DEFAULT, {}),
                (TUNED, f"{TUNED}-trial={one['trial']}", one["settings"]),
            ):
                name = f"{run.strategy}-{label}-s{run.seed}"
                runs.append(self._run(self.out, name, run.strategy, run.seed, settings, {CELL: cell}))
        return self._comparison(self.out, runs, self.base.seeds, {CELL: [DEFAULT, TUNED]})

    def write(self, best: Mapping[str, Best] | None = None) -> None:
        """Write tuning.json."""
        write_json(self.out / NAME, self._content() | ({"best": best} if best else {}))

    def lines(self) -> list[str]:
        """Lines on the plan: trials, ranges, runs."""
        count, tuning, seeds = len(self.base.strategies), len(self.tuning_seeds), len(self.base.seeds)
        return [
            f"{self.trials} trials each of {', '.join(self.base.strategies)}, the first with the default settings.",
            *(f"{key}: {text}" for key, text in self.over.items()),
            f"Ranked by: {self.goal.name}, mean over the seeds {', '.join(map(str, self.tuning_seeds))}.",
            f"Runs: {self.trials * count * tuning} of trials, then {2 * count * seeds} with default and tuned settings "
            f"on the seeds {', '.join(map(str, self.base.seeds))}.",
        ]

    def check(self) -> None:
        """Raise ConfigError if the folder is another's or holds another tuning, or a run would be refused.

        A tuning with another number of trials goes on.
        """
        found = read_tuning(self.out)
        if found is None:
            self.base.check()
        self.trial_comparison([]).check()
        for key, value in self._content().items():
            if found is not None and key != "trials" and found.get(key) != value:
                raise ConfigError(
                    f"The folder {self.out} holds a tuning with '{key}' = {found.get(key)!r}, not {value!r}. "
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

    def _run(
        self,
        out: Path,
        name: str,
        strategy: str,
        seed: int,
        settings: Mapping[str, Value],
        cell: Mapping[str, Value],
    ) -> PlannedRun:
        like = next(run for run in self.base.runs if run.strategy == strategy)
        folder = out / "runs" / name
        own = {key: value for key, value in like.config.values().items() if key not in ("out", "seed")}
        config = resolve(own | dict(settings) | {"seed": seed, "out": str(folder)})
        return PlannedRun(name, strategy, seed, cell, folder, config)

    def _comparison(
        self, out: Path, runs: Sequence[PlannedRun], seeds: Sequence[int], grid: Mapping[str, Sequence[Value]]
    ) -> Comparison:
        base = self.base
        return Comparison(out, base.strategies, seeds, grid, base.settings, base.baseline, base.pipelines, runs)


def plan_tuning(base: Comparison, trials: int, tuning_seeds: Sequence[int], over: str, goal: str) -> Tuning:
    """Plan of a tuning whose methods and seeds that report are those of `base`.

    Raises
    ------
    ConfigError
        For seeds that both tune and report, a range that is none, or a method without any setting of `over`.
    """
    if both := sorted({*tuning_seeds} & {*base.seeds}):
        raise ConfigError(
            f"The seeds of --tuning-seeds must not report: {', '.join(map(str, both))} are in --seeds too."
        )
    methods = {name: find_strategy(name) for name in base.strategies}
    space = parse_space(over, list(methods.values()))
    for key in space:
        if key in base.settings:
            raise ConfigError(f"'{key}' is in --over and set for all methods; leave one of them out.")
    spaces = {}
    for name in methods:
        values = next(run.config for run in base.runs if run.strategy == name).values()
        spaces[name] = {key: one for key, one in space.items() if key in values}
        if not spaces[name]:
            raise ConfigError(f"{name} has none of the settings of --over, so its trials would all be the same.")
    texts = {key: str(one) for key, one in space.items()}
    tuning = Tuning(base, trials, list(dict.fromkeys(tuning_seeds)), spaces, texts, GOALS[goal])
    for name, ranges in spaces.items():
        for key, one in ranges.items():
            for end in one.ends:
                try:
                    tuning.trial_runs(name, 1, {key: end})
                except ConfigError as error:
                    raise ConfigError(f"{name} cannot have all of the range of '{key}', {one}: {error}") from error
    return tuning
