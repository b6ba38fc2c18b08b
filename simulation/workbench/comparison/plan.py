"""Plan of a comparison: its runs, on the same seeds for every strategy, and their progress.

A seed decides the partitions, the links and the initial model. So runs of one seed differ only in their strategy and in
the settings that a preset has for single methods.

The functions at the end place the runs: how many run at the same time on this machine, and which GPUs each of them has.
"""

import itertools
import json
import math
import os
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedsel_app.caches import of_a_run
from fedsel_app.config import DECLARED, ConfigError, Value, changes_numbers
from fedsel_app.presets.preset import load_preset
from fedsel_app.records.files import write_text
from fedsel_app.records.run_folder import read_config
from fedsel_app.wiring.configuration import AppConfig, resolve
from simulation.engines.choice import choose, estimate
from simulation.engines.idle_settings import refuse_idle
from simulation.engines.preflight import refuse_unrunnable
from simulation.engines.run_folders import read_summary
from simulation.engines.this_process import usable_cores
from simulation.workbench.comparison.plan_files import PLAN_VERSION, read_plan
from simulation.workbench.comparison.watch import progress_of_run
from simulation.workbench.terminal import duration_text
from strategies import STRATEGIES, find_strategy
from strategies.base import SelectionStrategy

BASELINE = "random"
"""Method that the others are compared with, if it is among them."""


@dataclass(frozen=True)
class PlannedRun:
    """Run of a comparison. `cell` is its cell of the grid: the values of the grid's keys that apply to its strategy."""

    name: str
    strategy: str
    seed: int
    cell: Mapping[str, Value]
    folder: Path
    config: AppConfig

    @property
    def files(self) -> list[Path]:
        """The run's folder, and the comparison's files on the run: the log and the settings."""
        return [self.folder, *(self.folder.with_name(f"{self.name}{ending}") for ending in (".log", ".toml"))]

    @property
    def finished(self) -> bool:
        """True if the run is finished."""
        return (self.folder / "summary.json").exists()

    def refuse_other(self) -> None:
        """Raise ConfigError if the folder has a run with other settings."""
        if not (self.folder / "config.json").exists():
            return
        recorded, wanted = read_config(self.folder), self.config.values()
        for key in sorted(recorded.keys() | wanted.keys()):
            if changes_numbers(key) and recorded.get(key) != wanted.get(key):
                raise ConfigError(
                    f"The run {self.name} is in {self.folder.parent} with '{key}' = {recorded.get(key)!r}, "
                    f"not {wanted.get(key)!r}. Choose another --out, or remove {self.folder}."
                )


@dataclass(frozen=True)
class ComparisonPlan:
    """Comparison: its runs, with the first seed first, and the settings that they come from."""

    out: Path
    strategies: Sequence[str]
    seeds: Sequence[int]
    grid: Mapping[str, Sequence[Value]]
    settings: Mapping[str, Value]
    baseline: str
    runs: Sequence[PlannedRun]

    @property
    def kind(self) -> str:
        """Sentence on what the methods share: see `comparison_kind`."""
        return comparison_kind({run.strategy: run.config.values() for run in self.runs}, self.grid)

    def lines(self, jobs: int) -> list[str]:
        """Lines on what the runs share, on each planned run, and on the time left."""
        finished = [run.folder for run in self.runs if run.finished]
        left = [run for run in self.runs if not run.finished]
        side_by_side = max(1, min(jobs, len(left)))
        runs = [
            f"{run.name}: {choose(run.config, cores_each(side_by_side)).engine}, round "
            f"{progress_of_run(run.name, run.folder).round} of {run.config.run.rounds}{' (finished)' * run.finished}"
            for run in self.runs
        ]
        return [*filter(None, [self.kind]), *runs, f"Side by side: {jobs}{left_text(finished, left, jobs)}"]

    def check(self) -> None:
        """Raise ConfigError if the folder has other content, or a run is invalid or differs from an existing one."""
        self._refuse_foreign()
        for run in self.runs:
            run.refuse_other()
        with of_a_run():
            for run in self.runs:
                if not run.finished:
                    # The run's own folder may hold its unfinished run.
                    choose(run.config)
                    records = replace(run.config.records, out=str(run.folder / "new"))
                    refuse_unrunnable(replace(run.config, records=records))

    def _refuse_foreign(self) -> None:
        for name in ("comparison.json", "compare.lock", "failures.jsonl", "runs"):
            if (self.out / name).is_symlink():
                raise ConfigError(f"The folder {self.out} has a symlink '{name}'; choose another --out.")
        for path in (path for run in self.runs for path in run.files):
            if path.is_symlink():
                raise ConfigError(f"{path} is a symlink; a comparison writes to its own files only. Remove it.")
        if (self.out / "rounds.jsonl").exists():
            raise ConfigError(f"The folder {self.out} already has a run; choose another --out.")
        if read_plan(self.out) is not None:
            return
        for name in ("runs", "failures.jsonl"):
            if os.path.lexists(self.out / name):
                raise ConfigError(f"The folder {self.out} has '{name}' but no comparison; choose another --out.")

    def write(self) -> None:
        """Write comparison.json atomically."""
        runs = [
            {
                "name": run.name,
                "strategy": run.strategy,
                "seed": run.seed,
                "cell": run.cell,
                "folder": run.folder.relative_to(self.out).as_posix(),
            }
            for run in self.runs
        ]
        content: dict[str, Any] = {
            "version": PLAN_VERSION,
            "strategies": self.strategies,
            "seeds": self.seeds,
            "grid": self.grid,
            "settings": self.settings,
            "baseline": self.baseline,
            "runs": runs,
        }
        write_text(self.out / "comparison.json", json.dumps(content, indent=2) + "\n")


def plan(
    out: Path,
    strategies: Sequence[str],
    seeds: Sequence[int],
    settings: Mapping[str, Value],
    grid: Mapping[str, Sequence[Value]],
) -> ComparisonPlan:
    """Plan every strategy with every seed and every combination of the grid's values.

    A method's own setting, set for all runs or in the grid, is left out for the other methods. Runs that are then
    identical count once. The baseline is `BASELINE`, or else the first strategy.

    Raises ConfigError for invalid settings, settings that belong to none of the strategies or are also in the grid, and
    if there are no strategies, seeds or values.
    """
    strategies, seeds = list(dict.fromkeys(strategies)), list(dict.fromkeys(seeds))
    for name, values_of in {"strategies": strategies, "seeds": seeds, **grid}.items():
        if not values_of:
            raise ConfigError(f"Give '{name}' at least one value: without it the comparison has no runs.")
    for name in settings.keys() & grid.keys():
        raise ConfigError(f"Give '{name}' in the grid, or one value of it for all runs, not both.")
    baseline = BASELINE if BASELINE in strategies else strategies[0]
    for key in [*settings, *grid]:
        if key in DECLARED and DECLARED[key].own:
            raise ConfigError(f"A comparison sets '{key}' itself; use its strategies, seeds and out instead.")
    methods = {name: find_strategy(name) for name in strategies}
    others = _own_keys([*STRATEGIES.values(), *methods.values()])
    for key in grid:
        if key in others and key not in _own_keys(methods.values()):
            raise ConfigError(f"The grid's '{key}' belongs to none of the strategies {', '.join(strategies)}.")
    cells = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    runs: dict[str, PlannedRun] = {}
    for seed, (strategy, method), cell in itertools.product(seeds, methods.items(), cells):
        foreign = others - _own_keys([method])
        cell = {key: value for key, value in cell.items() if key not in foreign}
        shared = {key: value for key, value in settings.items() if key not in foreign}
        name = run_name(strategy, cell, seed)
        folder = out / "runs" / name
        config = resolve(shared | cell | {"strategy": strategy, "seed": seed, "out": str(folder)})
        run = PlannedRun(name, strategy, seed, cell, folder, config)
        if runs.setdefault(name, run) != run:
            raise ConfigError(f"Two runs would have the name {name}; leave one of them out.")
    preset = str(settings.get("preset", ""))
    refuse_idle([*settings, *grid], [run.config.values() for run in runs.values()], preset)
    return ComparisonPlan(out, strategies, seeds, grid, settings, baseline, list(runs.values()))


def preset_strategies(preset: str) -> list[str]:
    """Strategies of the preset with this name. Raises ConfigError if there is no preset, or it has none."""
    strategies = list(load_preset(preset).strategies) if preset else []
    if not strategies:
        raise ConfigError("A comparison needs --strategies NAME,... or a --preset that has some: `fedsel presets`.")
    return strategies


def run_name(strategy: str, cell: Mapping[str, Value], seed: int) -> str:
    """Name of a run, and of its folder."""
    parts = [strategy, *(f"{key}={value}" for key, value in cell.items()), f"s{seed}"]
    return re.sub(r"[^\w.=+-]+", "-", "-".join(parts))


def _own_keys(methods: Iterable[type[SelectionStrategy]]) -> set[str]:
    return {key for method in methods for key in method.Config.keys(f"{method.name}.")}


def differing_settings(
    configs: Mapping[str, Mapping[str, Value]], swept: Collection[str]
) -> dict[str, dict[str, Value]]:
    """Strategy -> its values of the shared settings in which the strategies differ, without the `swept` ones.

    `configs` has all settings of one run of each strategy.
    """
    common = set.intersection(*(set(values) for values in configs.values())) - set(swept)
    keys = [key for key, entry in DECLARED.items() if key in common and entry.scope.numbers and not entry.own]
    different = [key for key in keys if len({repr(values[key]) for values in configs.values()}) > 1]
    return {name: {key: values[key] for key in different} for name, values in configs.items()}


def comparison_kind(configs: Mapping[str, Mapping[str, Value]], swept: Collection[str]) -> str:
    """Sentence on what the methods of a comparison share; empty for a single method.

    `configs` and `swept` are those of `differing_settings`.
    """
    if len(configs) < 2:
        return ""
    first, *_ = configs
    if keys := differing_settings(configs, swept)[first]:
        return f"The methods also differ in {', '.join(keys)}."
    weighs = ", which also weighs the updates" if configs[first].get("weighting") == "method" else ""
    return f"Everything equal but the method{weighs}."


def left_text(finished: Sequence[Path], left: Sequence[PlannedRun], jobs: int) -> str:
    """About how long the runs that are `left` take, `jobs` at a time, at the pace of the finished ones.

    Before one is finished, it says how long their local training takes at least.
    """
    if not left:
        return ""
    side_by_side = min(jobs, len(left))
    if paces_s := [summary["wall_s"] for folder in finished if (summary := read_summary(folder))]:
        return f"; about {duration_text(statistics.fmean(paces_s) * len(left) / side_by_side)} left"
    training_s = sum(estimate(run.config, 1)[0] for run in left)
    return f"; at least {duration_text(training_s / side_by_side)}, the local training with one CPU core a run"


def default_jobs(configs: Sequence[AppConfig], gpus: int) -> int:
    """Number of runs that fit side by side on this machine's cores, and on its GPUs if clients use a share of one."""
    return max(1, min(_room(config, usable_cores(), gpus) for config in configs))


def cores_each(jobs: int) -> int:
    """Number of cores for each of `jobs` simultaneous runs."""
    return max(1, usable_cores() // jobs)


def workers_each(config: AppConfig, jobs: int) -> int:
    """Ray workers for each of `jobs` simultaneous runs: `workers`, or else 0 (all cores) if alone, or its part.

    Clients that take a share of a GPU have one worker, because `default_jobs` divides the GPUs among the runs.
    """
    if config.execution.workers or jobs == 1:
        return config.execution.workers
    return 1 if config.execution.client_gpus else cores_each(jobs)


def _room(config: AppConfig, cores: int, gpus: int) -> int:
    room = cores // (config.execution.workers or 1)
    share = _gpu_share(config)
    if gpus == 0 or share == 0:
        return room
    return min(room, gpus * int(1 / share + 1e-9) if share <= 1 else gpus // math.ceil(share))


def visible_gpus(slot: int, config: AppConfig, gpus: int) -> dict[str, str]:
    """Environment that gives a run its own GPUs, if there are several GPUs and several simultaneous runs."""
    if gpus < 2:
        return {}
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = devices.split(",") if devices else [str(index) for index in range(gpus)]
    width = max(1, math.ceil(_gpu_share(config)))
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[(slot * width + offset) % gpus] for offset in range(width))}


def gpu_count() -> int:
    """Number of GPUs that CUDA sees."""
    return torch.cuda.device_count()


def _gpu_share(config: AppConfig) -> float:
    """GPUs that one run takes, as a fraction; 0 if its clients use none."""
    return config.execution.client_gpus * (config.execution.workers or 1)
