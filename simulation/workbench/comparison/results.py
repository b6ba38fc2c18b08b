"""Results of a comparison or one run, read from its folder, with notes on unfinished and missing runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import pandas as pd

from fedsel_app.config import DECLARED, ConfigError, Value
from fedsel_app.records.reading import legible, read_object, read_rows
from fedsel_app.records.run_folder import DATA, read_config
from fedsel_app.records.schema import schedule_round
from simulation.workbench.comparison.plan import BASELINE, comparison_kind, differing_settings, run_name
from simulation.workbench.comparison.plan_files import check_failure, read_plan
from simulation.workbench.comparison.runs import SHOWN, RecordedRun, joined, read_recorded_run


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
    def title(self) -> str:
        """The name in headings, captions and names of files."""
        return self.name.replace("=", " ")

    @property
    def methods(self) -> dict[str, str]:
        """Variant -> its method, by the name without a label."""
        return {name: str(runs[0].config["strategy"]) for name, runs in self.runs.items()}

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
    folder : its folder, or that for the report of runs from several folders
    groups : the counted runs: the finished ones or, if none is finished, all with a finished round
    runs : every run with a finished round, by name, including those that are not counted
    notes : sentences on missing and unfinished runs
    """

    folder: Path
    groups: tuple[Group, ...]
    runs: Mapping[str, RecordedRun]
    notes: tuple[str, ...]

    run_kind: ClassVar[type[RecordedRun]] = RecordedRun

    @classmethod
    def read(cls, folder: Path, sources: Sequence[Path] = (), labels: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Read the folder of `fedsel compare` or of one run.

        Raises ConfigError if there are no runs with a finished round, a file cannot be read, `sources` have two runs of
        a variant on one seed, or a label is of another method or of two.

        Parameters
        ----------
        sources : folders of runs and comparisons to compare with each other, in place of `folder`
        labels : method -> the name under which it is shown
        """
        plan = plan_of(sources) if sources else _plan(folder)
        runs: dict[str, RecordedRun] = {}
        notes: list[str] = [*plan.get("notes", [])]
        for planned in plan["runs"]:
            name = planned["name"]
            run = read_recorded_run(folder / planned["folder"], name, planned.get("cell", {}), cls.run_kind)
            if run is None or not run.rows:
                notes.append(_not_begun(name))
            else:
                runs[name] = replace(run, strategy=labels.get(run.strategy, run.strategy))
        for place in sources or [folder]:
            failures = read_rows(place / "failures.jsonl", check_failure)
            over = [name for name, run in runs.items() if run.finished]  # a failed run may have been resumed
            notes += [f"{row['name']} failed: {row['message']}" for row in failures if row["name"] not in over]
        if not runs:
            raise ConfigError(f"{folder} has no run with a finished round: there is nothing to report yet.")
        methods = {str(run.config["strategy"]): run.strategy for run in runs.values()}
        if foreign := labels.keys() - methods.keys():
            raise ConfigError(f"A label is for one of {', '.join(methods)}. Got {', '.join(sorted(foreign))}.")
        if len({*methods.values()}) < len(methods):
            raise ConfigError(f"Give each label another text. Got {', '.join(methods.values())}.")
        finished = [run for run in runs.values() if run.finished]
        for run in runs.values():
            if not run.finished:
                so_far = f"{run.name} is unfinished: {schedule_round(run.rows[-1])} of {run.config['rounds']} rounds."
                notes.append(so_far + (" It is left out of figures and statistics." if finished else ""))
        if not finished:
            notes.append("No run is finished, so everything below is provisional and counts the rounds so far.")
        counted = finished or list(runs.values())
        baseline = str(plan.get("baseline", ""))
        groups, without = _groups(counted, labels.get(baseline, baseline))
        notes += without
        return cls(folder, groups, runs, tuple(notes))

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

    def kind_of(self, group: Group) -> str:
        """Sentence on what the methods of a group share: see `comparison_kind`."""
        settings = {run.strategy: run.config for run in group.all_runs}
        return comparison_kind(settings, {key for run in group.all_runs for key in run.cell})


def _plan(folder: Path) -> dict[str, Any]:
    """Content of comparison.json; for the folder of one run, the same content for this run."""
    plan = read_plan(folder)
    if plan is not None:
        return plan
    if (folder / "rounds.jsonl").is_file():
        return {"runs": [{"name": folder.resolve().name, "folder": "."}]}
    raise ConfigError(
        f"{folder} has no runs: it has neither comparison.json (of `fedsel compare`) nor rounds.jsonl (of a run). To "
        "compare several runs, name the folder of each."
    )


def plan_of(sources: Sequence[Path]) -> dict[str, Any]:
    """The content of comparison.json for the runs in several folders, each of a run or a comparison.

    It has the baseline that all folders state alike, or else that of `plan`. A shared setting whose values differ
    between runs of one method is swept. One that differs only between methods is part of their pipelines.

    Raises ConfigError if a folder has no run, or two runs have the same method, seed and swept settings.
    """
    plans = {source.absolute(): _plan(source) for source in sources}
    planned = {source / run["folder"]: run["name"] for source, plan in plans.items() for run in plan["runs"]}
    folders = [folder for folder in planned if (folder / "config.json").is_file()]
    notes = [_not_begun(planned[folder]) for folder in planned if folder not in folders]
    configs = {folder: legible(read_config(folder, SHOWN), lines=False) for folder in folders}
    methods: dict[Value, list[Mapping[str, Value]]] = {}
    for config in configs.values():
        methods.setdefault(config["strategy"], []).append(config)
    swept: dict[str, None] = {}
    for values in methods.values():
        of_one = {str(position): config for position, config in enumerate(values)}
        swept |= dict.fromkeys(key for values_of in differing_settings(of_one, ()).values() for key in values_of)
        own_keys = [key for key in values[0] if key not in DECLARED]
        swept |= dict.fromkeys(key for key in own_keys if len({repr(config.get(key)) for config in values}) > 1)
    runs: dict[str, dict[str, Any]] = {}
    digests: dict[str, set[str]] = {}
    for folder, config in configs.items():
        cell = {key: config[key] for key in swept if key in config}
        name = run_name(str(config["strategy"]), cell, int(config["seed"]))
        if name in runs:
            raise ConfigError(
                f"Leave out {folder} or {runs[name]['folder']}: both are a run of {config['strategy']} with the seed "
                f"{config['seed']} and the same settings."
            )
        runs[name] = {"name": name, "folder": str(folder), "cell": cell}
        if data := read_object(folder / DATA):
            paired = {key: value for key, value in cell.items() if key in DECLARED}
            digests.setdefault(repr((config["seed"], paired)), set()).add(str(data.get("digest")))
    if any(len(values_of) > 1 for values_of in digests.values()):
        notes.append("Runs of one seed have different data, so that not only methods differ.")
    stated = {str(plan.get("baseline", "")) for plan in plans.values()}
    baseline = BASELINE if BASELINE in methods else ""
    return {
        "runs": list(runs.values()),
        "notes": notes,
        "baseline": (stated.pop() if len(stated) == 1 else "") or baseline,
    }


def _not_begun(name: str) -> str:
    return f"{name} has not finished a round yet: it is not in this report."


def _groups(runs: Sequence[RecordedRun], baseline_name: str) -> tuple[tuple[Group, ...], list[str]]:
    """Group runs by the swept keys that all runs have; the other keys of the cell belong to the variant.

    Also returns a sentence for each group without a run of the baseline, which then is its first variant.
    """
    several = len({run.strategy for run in runs}) > 1
    shared = [key for key in runs[0].cell if several and all(key in run.cell for run in runs)]

    def cell(run: RecordedRun, *, outer: bool) -> str:
        return ", ".join(f"{key}={value}" for key, value in run.cell.items() if (key in shared) == outer)

    def variant(run: RecordedRun) -> str:
        own_cell = cell(run, outer=False)
        return (f"{run.strategy}, {own_cell}" if own_cell else run.strategy) if several else own_cell or run.strategy

    variants = list(dict.fromkeys(variant(run) for run in runs))
    groups: dict[str, dict[str, list[RecordedRun]]] = {cell(run, outer=True): {} for run in runs}
    for run in sorted(runs, key=lambda run: (variants.index(variant(run)), run.seed)):
        groups[cell(run, outer=True)].setdefault(variant(run), []).append(run)
    sections, notes = [], []
    for name, by_variant in groups.items():
        first, *others = by_variant
        fitting = [key for key, of in by_variant.items() if baseline_name in (key, of[0].strategy)]
        baseline = fitting[0] if fitting else first
        if baseline_name and others and not fitting:
            where = f" with {name}" if name else ""
            notes.append(f"No run of the baseline {baseline_name} counts{where}: {first} takes its place.")
        sections.append(Group(name, {key: tuple(of) for key, of in by_variant.items()}, baseline))
    return tuple(sections), notes
