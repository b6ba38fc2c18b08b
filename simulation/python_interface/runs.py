"""Runs from Python: `run`, `load_run`, and their result."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Unpack

from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor, nn

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.run_folder import completed_rounds, read_rounds
from fedsel_app.records.schema import Row
from simulation.comparison.measures import ACCURACY, metric_of
from simulation.comparison.results import Group
from simulation.comparison.runs import Run, read_run
from simulation.engines.choice import choose
from simulation.experiments.configuration import resolve
from simulation.python_interface.keywords import listed, setting_values
from simulation.python_interface.places import simulate_apart, simulate_inline
from simulation.python_interface.setting_keywords import SettingKeywords
from simulation.python_interface.trained_model import test_data, trained_model
from simulation.report.drawing import Style
from simulation.report.figures import accuracy_plot
from simulation.report.progress import RunDisplay
from simulation.wiring.folders import run_folder
from simulation.wiring.resumption import resolve_resumed


class RunResult(Run):
    """Run that was read from its folder: `run` and `load_run` return one."""

    @property
    def settings(self) -> Mapping[str, Value]:
        """Setting key -> value."""
        return self.config

    @property
    def model(self) -> nn.Module:
        """The model of the last round, on the CPU and in eval mode; it takes samples normalised as in `test_data`."""
        return trained_model(self.folder / "model.npz", self.settings)

    @property
    def best_model(self) -> nn.Module:
        """The model of the best accuracy, likewise."""
        return trained_model(self.folder / "best-model.npz", self.settings)

    @property
    def test_data(self) -> tuple[Tensor, Tensor]:
        """Samples of the server's test set, normalised as the model takes them, and their targets."""
        return test_data(self.settings)

    def plot(self, metric: str = ACCURACY) -> Figure:
        """Figure of the score, or of another metric, against rounds, seconds, bytes sent and client updates."""
        alone = Group("", {self.strategy: (self,)}, self.strategy)
        return accuracy_plot(alone, Style(), metric_of([self], metric)).figure


@listed(SettingKeywords)
def run(
    strategy: str | None = None,
    *,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    settings: Mapping[str, Value] | None = None,
    on_round: Callable[[Row], None] | None = None,
    progress: bool = True,
    **keywords: Unpack[SettingKeywords],
) -> RunResult:
    """Simulate one run on this machine, to the same bits as `fedsel run` with the same settings.

    Small runs are carried out in this process; what only Ray can do, or does sooner, in processes of its own.

    Parameters
    ----------
    strategy
        Selection method, as `fedsel methods` lists them, or package.module:Class; by default the preset's, or
        hetero-select.
    seed
        Seed of everything that is drawn; 42 by default.
    out
        Run folder; by default one in runs/, named by method, data, seed and time.
    resume
        Folder of an interrupted run that goes on; with it no settings but those of its place, such as `engine`.
    settings
        More settings by their keys, as `--set` has them: those of a method of your own.
    on_round
        Called with the record of each finished round.
    progress
        Show a bar on a terminal, and else a line a round.
    keywords
        Settings, underscores for dashes (`local_steps=10`), those of a method after its name (`oort_explore=0.5`).

    Raises
    ------
    ConfigError
        For settings that cannot be run, and a folder that is in use.
    RuntimeError
        If the processes of a run through Ray fail.
    KeyboardInterrupt
        On Ctrl-C; the rounds so far are kept, and `run(resume=FOLDER)` goes on.
    """
    values = setting_values(keywords, settings)
    values |= {} if strategy is None else {"strategy": strategy}
    values |= {} if seed is None else {"seed": seed}
    values |= {} if out is None else {"out": str(Path(out).expanduser().absolute())}
    config = resolve(values) if resume is None else resolve_resumed(Path(resume).expanduser(), values)
    choice = choose(config)
    completed = completed_rounds(run_folder(config)) if resume is not None else 0
    display = RunDisplay(config.run.rounds, Console(), completed, measured=config.network.links == "measured")

    def show(row: Row) -> None:
        if progress:
            display.show(row)
        if on_round is not None:
            on_round(row)

    with display if progress else nullcontext():
        inline = choice.engine == "inline"
        return load_run(simulate_inline(config, show) if inline else simulate_apart(config, show, completed))


def load_run(folder: str | Path) -> RunResult:
    """Read a run from its folder, whoever carried it out; also one that is unfinished, as far as it is.

    Raises
    ------
    ConfigError
        If there is no run, none of its rounds is finished, or a file is damaged.
    """
    place = Path(folder).expanduser().absolute()
    read_rounds(place)
    found = read_run(place, place.name, {}, RunResult)
    if found is None or not found.rows:
        raise ConfigError(f"{place} holds no run with a finished round: there is nothing to read yet.")
    return found
