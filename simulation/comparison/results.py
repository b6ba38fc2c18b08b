"""Results of a comparison or one run, read from its folder, with notes on unfinished and missing runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import pandas as pd

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.reading import check_failure, read_rows
from fedsel_app.records.schema import schedule_round
from simulation.comparison.pipelines import Pipelines, comparison_kind, differing_settings
from simulation.comparison.plan_file import read_plan
from simulation.comparison.runs import RecordedRun, joined, read_recorded_run

REPORTED = ("comparison.json", "rounds.jsonl")
"""A folder for `fedsel report` has one of these files."""
MOST_NAMED = 5
"""Maximum number of folders that a sentence names."""


@dataclass(frozen=True)
class Group:
    """Group of variants to compare: the strategies in one cell of the grid, or the cells of one strategy.

    If only some strategies have a swept key, each of its values is a variant of these strategies.

    Attributes
    ----------
    name : the cell; empty if there is only one group
    runs : variant -> its runs, ascending by seed
    baseline : the variant that the others are compared with
    """

    name: str
    runs: Mapping[str, tuple[RecordedRun, ...]]
    baseline: str

    @property
    def all_runs(self) -> list[RecordedRun]:
        """The runs of all variants."""
        return [run for runs in self.runs.values() for run in runs]


@dataclass(frozen=True, eq=False, repr=False)
class RecordedComparison:
    """Comparison, read from its folder.

    Its data frames concatenate those of its runs. The first columns are run, strategy, seed, and one per key of the
    grid.

    Attributes
    ----------
    settings : settings that were set for all runs
    pipelines : settings that the preset has for single methods
    groups : the counted runs: the finished ones or, if none is finished, all with a finished round
    runs : every run with a finished round, by name, including those that are not counted
    notes : sentences on missing and unfinished runs
    """

    folder: Path
    settings: Mapping[str, Value]
    pipelines: Pipelines
    groups: tuple[Group, ...]
    runs: Mapping[str, RecordedRun]
    notes: tuple[str, ...]

    run_kind: ClassVar[type[RecordedRun]] = RecordedRun

    @classmethod
    def read(cls, folder: Path, baseline: str | None = None) -> Self:
        """Read the folder of `fedsel compare` or of one run; `baseline` replaces the baseline of the folder.

        Raises
        ------
        ConfigError
            If there are no runs with a finished round, a file cannot be read, or no variant is called `baseline`.
        """
        plan = _plan(folder)
        runs: dict[str, RecordedRun] = {}
        notes: list[str] = []
        for planned in plan["runs"]:
            name = planned["name"]
            run = read_recorded_run(folder / planned["folder"], name, planned.get("cell", {}), cls.run_kind)
            if run is None or not run.rows:
                notes.append(f"{name} has not finished a round yet: it is not in this report.")
            else:
                runs[name] = run
        failures = read_rows(folder / "failures.jsonl", check_failure)
        notes += [f"{row['name']} failed: {row['message']}" for row in failures]
        if not runs:
            raise ConfigError(f"{folder} has no run with a finished round: there is nothing to report yet.")
        finished = [run for run in runs.values() if run.finished]
        for run in runs.values():
            if not run.finished:
                so_far = f"{run.name} is unfinished: {schedule_round(run.rows[-1])} of {run.config['rounds']} rounds."
                notes.append(so_far + (" It is left out of figures and statistics." if finished else ""))
        if not finished:
            notes.append("No run is finished, so everything below is provisional and counts the rounds so far.")
        groups = _groups(finished or list(runs.values()), baseline, str(plan.get("baseline", "")))
        pipelines = Pipelines(**plan.get("pipelines", {}))
        return cls(folder, plan.get("settings", {}), pipelines, groups, runs, tuple(notes))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Rounds of all runs: see `RecordedRun.rounds`."""
        return self._joined("rounds")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """Clients of all runs: see `RecordedRun.clients`."""
        return self._joined("clients")

    @cached_property
    def selections(self) -> pd.DataFrame:
        """Selections of all runs: see `RecordedRun.selections`."""
        return self._joined("selections")

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Summary of all runs, one row each: see `RecordedRun.summary`."""
        return self._joined("summary")

    def _joined(self, name: str) -> pd.DataFrame:
        return joined(
            ({"run": run.name, "strategy": run.strategy, "seed": run.seed, **run.cell}, getattr(run, name))
            for run in self.runs.values()
        )

    @property
    def counted(self) -> list[RecordedRun]:
        """The counted runs: see `groups`."""
        return [run for group in self.groups for run in group.all_runs]

    @property
    def differing(self) -> dict[str, dict[str, Value]]:
        """Strategy -> its values of the shared settings in which the strategies differ."""
        return _differing(self.counted)

    def kind_of(self, group: Group) -> str:
        """Sentence on what the methods of a group share: see `comparison_kind`."""
        return comparison_kind(_differing(group.all_runs), self.pipelines)


def _plan(folder: Path) -> dict[str, Any]:
    """Content of comparison.json; for the folder of one run, the same content for this run."""
    plan = read_plan(folder)
    if plan is not None:
        return plan
    if (folder / "rounds.jsonl").is_file():
        return {"runs": [{"name": folder.resolve().name, "folder": "."}]}
    below = sorted({path.parent for name in REPORTED for path in folder.glob(f"*/{name}")})
    if below:
        listed = ", ".join(path.name for path in below[:MOST_NAMED]) + ", ..." * (len(below) > MOST_NAMED)
        raise ConfigError(
            f"{folder} is not a run, but a folder with {listed}. For one of them, use fedsel report {below[0]}. To "
            "compare methods, use `fedsel compare`: a report does not compare runs of `fedsel run`."
        )
    raise ConfigError(
        f"{folder} has no runs: it has neither comparison.json (of `fedsel compare`) nor rounds.jsonl (of a run)."
    )


def _differing(runs: Sequence[RecordedRun]) -> dict[str, dict[str, Value]]:
    """Strategy -> its values of the shared settings in which the strategies of `runs` differ."""
    return differing_settings({run.strategy: run.config for run in runs}, {key for run in runs for key in run.cell})


def _groups(runs: Sequence[RecordedRun], wanted: str | None, planned: str) -> tuple[Group, ...]:
    """Group runs by the swept keys that all runs have; the other keys of the cell belong to the variant."""
    several = len({run.strategy for run in runs}) > 1
    shared = [key for key in runs[0].cell if several and all(key in run.cell for run in runs)]

    def cell(run: RecordedRun, *, outer: bool) -> str:
        return ", ".join(f"{key}={value}" for key, value in run.cell.items() if (key in shared) == outer)

    def variant(run: RecordedRun) -> str:
        own = cell(run, outer=False)
        return (f"{run.strategy}, {own}" if own else run.strategy) if several else own or run.strategy

    variants = list(dict.fromkeys(variant(run) for run in runs))
    if wanted is not None and wanted not in [*variants, *(run.strategy for run in runs)]:
        raise ConfigError(f"The baseline must be one of {'; '.join(variants)}. Got {wanted!r}.")
    named = wanted or planned
    groups: dict[str, dict[str, list[RecordedRun]]] = {cell(run, outer=True): {} for run in runs}
    for run in sorted(runs, key=lambda run: (variants.index(variant(run)), run.seed)):
        groups[cell(run, outer=True)].setdefault(variant(run), []).append(run)
    return tuple(
        Group(
            name,
            {key: tuple(of) for key, of in by_variant.items()},
            next((key for key, of in by_variant.items() if named in (key, of[0].strategy)), next(iter(by_variant))),
        )
        for name, by_variant in groups.items()
    )
