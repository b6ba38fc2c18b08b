"""Comparisons from Python: `compare`, `load_comparison`, and their result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from rich.console import Console

from fedsel_app.caches import of_a_run
from fedsel_app.config import ConfigError, Value, require
from fedsel_app.config.settings import setting_value
from fedsel_app.wiring.configuration import AppConfig
from simulation.workbench.comparison.measures import metric_of
from simulation.workbench.comparison.plan import default_jobs, gpu_count, plan, preset_strategies
from simulation.workbench.comparison.results import RecordedComparison
from simulation.workbench.comparison.run_processes import carry_out
from simulation.workbench.python_interface.keywords import key_of, listed, setting_values, several
from simulation.workbench.python_interface.runs import RunResult
from simulation.workbench.report.drawing import plot_metric
from simulation.workbench.terminal import wide_console

if TYPE_CHECKING:
    from typing import Unpack

    from simulation.workbench.python_interface.setting_keywords import SettingKeywords


class ComparisonResult(RecordedComparison):
    """Comparison that was read from its folder: the result of `compare` and `load_comparison`."""

    run_kind = RunResult
    runs: Mapping[str, RunResult]

    def plot(self, cell: str | None = None) -> Figure:
        """Figure of the score against rounds, seconds, bytes sent and client updates.

        Raises ConfigError if there are several cells and `cell` is None, or no cell has this name.

        Parameters
        ----------
        cell : cell of the grid, such as "alpha=0.1"; needed if there are several
        """
        groups = {group.name: group for group in self.groups}
        if cell is None and len(groups) == 1:
            [cell] = groups
        if cell not in groups:
            raise ConfigError(f"plot() takes one of the cells {'; '.join(groups)}. Got {cell!r}.")
        return plot_metric(groups[cell], metric_of(self.counted)).figure


def refuse_main(config: AppConfig) -> None:
    """Raise ConfigError if a setting names code of the main program or notebook, which no other process can import."""
    for key, value in config.values().items():
        if str(value).startswith("__main__:"):
            raise ConfigError(
                f"The '{key}' parameter names {value!r}, but another process carries out this run, and it cannot "
                "import __main__: write the code to a file (in a notebook with %%writefile), and name that module."
            )


@listed
def compare(
    strategies: Sequence[str] | None = None,
    *,
    out: str | Path,
    seeds: Sequence[int] = (1, 2, 3),
    grid: Mapping[str, Sequence[Value]] | None = None,
    jobs: int | None = None,
    settings: Mapping[str, Value] | None = None,
    progress: bool = True,
    **keywords: "Unpack[SettingKeywords]",
) -> ComparisonResult:
    """Simulate several methods on the same seeds, as `fedsel compare` does, each run in its own process.

    Finished runs in `out` are kept, and interrupted runs are resumed.

    Raises ConfigError for settings that cannot be run, or if `out` is the folder of another comparison. Raises
    RuntimeError if runs fail, with their names and reasons; `load_comparison` reads the other runs.

    Parameters
    ----------
    strategies : selection methods; by default those of the preset
    out : comparison folder
    seeds : the same for every method
    grid : setting -> its values. Each combination of values is compared.
    jobs : number of runs at the same time; by default it depends on the cores and GPUs
    settings, keywords : settings of all runs, as in `run`
    progress : print a line when a run begins and ends
    """
    jobs = setting_value(jobs)
    require(jobs is None or (type(jobs) is int and jobs > 0), "jobs", "a whole number above 0, or None", jobs)
    values = setting_values(keywords, settings)
    cells = {key_of(keyword): list(map(setting_value, several(of_key))) for keyword, of_key in (grid or {}).items()}
    with of_a_run():
        if strategies is None:
            strategies = preset_strategies(str(values.get("preset", "")))
        folder = Path(out).expanduser().absolute()
        comparison = plan(folder, several(strategies), several(seeds), values, cells)
        for planned in comparison.runs:
            refuse_main(planned.config)
        comparison.check()
    side_by_side = jobs or default_jobs([planned.config for planned in comparison.runs], gpu_count())
    failures = carry_out(comparison, side_by_side, wide_console() if progress else Console(quiet=True))
    if failures:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failures.items())
        raise RuntimeError(f"These runs of the comparison in {comparison.out} failed: {reasons}.")
    return load_comparison(comparison.out)


def load_comparison(folder: str | Path) -> ComparisonResult:
    """Read a comparison from its folder, also one of `fedsel compare`, and also an unfinished one.

    Raises ConfigError if the folder has no run with a finished round, or a file is damaged.
    """
    return ComparisonResult.read(Path(folder).expanduser().absolute())
