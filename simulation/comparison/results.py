"""Results of a comparison, or of one run: its folder read, with notes on the runs that are unfinished or missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsel_app.config import ConfigError, RunConfig, Value
from fedsel_app.records.reading import check_client, check_failure, check_round, read_rows
from fedsel_app.records.run_folder import read_config
from fedsel_app.records.schema import Row, schedule_round
from simulation.comparison.pipelines import Pipelines, comparison_kind, differing_settings
from simulation.comparison.plan_file import read_plan

SHOWN = ("strategy", "seed", "clients", "cohort", "rounds", "data", "model", "partition", "links", "target")
"""Settings of a run that a report shows or counts with."""


@dataclass(frozen=True)
class Run:
    """Records of one run.

    Attributes
    ----------
    cell : the values of the swept keys
    rows : of rounds.jsonl, by round, without nulls
    client_rows : of clients.jsonl, without nulls
    finished : true if summary.json is there
    """

    name: str
    strategy: str
    seed: int
    cell: Mapping[str, Value]
    folder: Path
    config: Mapping[str, Value]
    rows: tuple[Row, ...]
    client_rows: tuple[Row, ...]
    finished: bool


@dataclass(frozen=True)
class Group:
    """Variants that are compared with one another: the strategies in one cell of the grid, or one strategy's cells.

    A swept key that only some strategies have makes variants of those, next to the others.

    Attributes
    ----------
    name : the cell; empty where there is one group only
    runs : variant -> its runs, ascending by seed
    baseline : the variant that the others are compared with
    """

    name: str
    runs: Mapping[str, tuple[Run, ...]]
    baseline: str

    @property
    def all_runs(self) -> list[Run]:
        """The runs of all variants."""
        return [run for runs in self.runs.values() for run in runs]


@dataclass(frozen=True)
class Comparison:
    """Groups of runs that a report is made of.

    Attributes
    ----------
    settings : what all runs share, as far as it was set
    pipelines : what the preset has for single methods
    groups : the runs that count: finished ones, or all that have rounds where none is finished
    runs : every run with a folder, those that do not count too
    notes : what is missing or unfinished, a sentence each
    """

    folder: Path
    settings: Mapping[str, Value]
    pipelines: Pipelines
    groups: tuple[Group, ...]
    runs: tuple[Run, ...]
    notes: tuple[str, ...]

    @property
    def differing(self) -> dict[str, dict[str, Value]]:
        """Strategy -> its values of the shared settings in which the strategies differ."""
        counted = [run for group in self.groups for run in group.all_runs]
        return differing_settings(
            {run.strategy: run.config for run in counted}, {key for run in counted for key in run.cell}
        )

    @property
    def kind(self) -> str:
        """Sentence on what the methods share: see `comparison_kind`."""
        return comparison_kind(self.differing, self.pipelines)

    def kind_of(self, group: Group) -> str:
        """Sentence on what the methods of a group share."""
        swept = {key for run in group.all_runs for key in run.cell}
        return comparison_kind(
            differing_settings({run.strategy: run.config for run in group.all_runs}, swept), self.pipelines
        )


def read_comparison(folder: Path, baseline: str | None = None) -> Comparison:
    """Read the folder of `fedsel compare`, or of one run; `baseline` replaces the one that it names.

    Raises
    ------
    ConfigError
        If there are no runs with a finished round, a file cannot be read, or no variant is called `baseline`.
    """
    plan = _plan(folder)
    runs: list[Run] = []
    notes: list[str] = []
    for planned in plan["runs"]:
        run = _read_run(folder / planned["folder"], planned["name"], planned.get("cell", {}))
        if run is None or not run.rows:
            notes.append(f"{planned['name']} has not finished a round yet: it is not in this report.")
            continue
        runs.append(run)
    notes += _failures(folder / "failures.jsonl")
    if not runs:
        raise ConfigError(f"{folder} holds no run with a finished round: there is nothing to report yet.")
    finished = [run for run in runs if run.finished]
    for run in runs:
        if not run.finished:
            so_far = f"{run.name} is unfinished: {schedule_round(run.rows[-1])} of {run.config['rounds']} rounds."
            notes.append(so_far + (" It is left out of figures and statistics." if finished else ""))
    if not finished:
        notes.append("No run is finished, so everything below is provisional and counts the rounds so far.")
    groups = _groups(finished or runs, plan, baseline)
    pipelines = Pipelines(**plan.get("pipelines", {}))
    return Comparison(folder, plan.get("settings", {}), pipelines, groups, tuple(runs), tuple(notes))


def _plan(folder: Path) -> dict[str, Any]:
    """The content of comparison.json; for the folder of one run, the same about it alone."""
    plan = read_plan(folder)
    if plan is not None:
        return plan
    if (folder / "rounds.jsonl").is_file():
        return {"runs": [{"name": folder.resolve().name, "folder": "."}]}
    raise ConfigError(
        f"{folder} holds no runs: it has neither comparison.json (of `fedsel compare`) nor rounds.jsonl (of a run)."
    )


def _read_run(folder: Path, name: str, cell: Mapping[str, Value]) -> Run | None:
    """The run in `folder`; None where it has not been started."""
    if not (folder / "config.json").is_file() or not (folder / "rounds.jsonl").is_file():
        return None
    config = read_config(folder, SHOWN)
    run = RunConfig.from_values(config)
    rows = {row["round"]: _without_nulls(row) for row in read_rows(folder / "rounds.jsonl", check_round)}
    for client in (client for row in rows.values() for client in row["selected"] + row.get("aggregated", [])):
        if not 0 <= client < run.clients:
            raise ConfigError(f"The records {folder / 'rounds.jsonl'} cannot be read: the run has no client {client}.")
    return Run(
        name=name,
        strategy=run.strategy,
        seed=run.seed,
        cell=cell,
        folder=folder,
        config=config,
        rows=tuple(rows[number] for number in sorted(rows)),
        client_rows=tuple(_without_nulls(row) for row in read_rows(folder / "clients.jsonl", check_client)),
        finished=(folder / "summary.json").is_file(),
    )


def _without_nulls(row: Row) -> Row:
    return {key: value for key, value in row.items() if value is not None}


def _failures(path: Path) -> list[str]:
    """A sentence for each run that `fedsel compare` saw fail."""
    return [f"{row['name']} failed: {row['message']}" for row in read_rows(path, check_failure)]


def _groups(runs: Sequence[Run], plan: Mapping[str, Any], wanted: str | None) -> tuple[Group, ...]:
    """Runs that share the swept keys which all have are a group; the rest of the cell belongs to the variant."""
    several = len({run.strategy for run in runs}) > 1
    shared = [key for key in runs[0].cell if several and all(key in run.cell for run in runs)]

    def cell(run: Run, *, outer: bool) -> str:
        return ", ".join(f"{key}={value}" for key, value in run.cell.items() if (key in shared) == outer)

    def variant(run: Run) -> str:
        own = cell(run, outer=False)
        return (f"{run.strategy}, {own}" if own else run.strategy) if several else own or run.strategy

    variants = list(dict.fromkeys(variant(run) for run in runs))
    if wanted is not None and wanted not in [*variants, *(run.strategy for run in runs)]:
        raise ConfigError(f"The baseline must be one of {'; '.join(variants)}. Got {wanted!r}.")
    named = wanted or str(plan.get("baseline", ""))
    groups = []
    for name in dict.fromkeys(cell(run, outer=True) for run in runs):
        members = [run for run in runs if cell(run, outer=True) == name]
        by_variant: dict[str, list[Run]] = {}
        for run in sorted(members, key=lambda run: (variants.index(variant(run)), run.seed)):
            by_variant.setdefault(variant(run), []).append(run)
        baselines = [key for key, of in by_variant.items() if named in (key, of[0].strategy)]
        frozen = {key: tuple(of) for key, of in by_variant.items()}
        groups.append(Group(name, frozen, (baselines or list(frozen))[0]))
    return tuple(groups)
