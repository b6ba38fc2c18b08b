"""Runs from Python: `run`, `load_run`, and their result, with its trained model as a torch module."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure
from rich.console import Console
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from clients.state import STATE_FOLDER, local_of
from fedsel_app.caches import of_a_run
from fedsel_app.config import ConfigError, Value
from fedsel_app.config.settings import plain_value
from fedsel_app.data.batches import device_data
from fedsel_app.data.dataset import load
from fedsel_app.data.inputs import Inputs
from fedsel_app.models import building
from fedsel_app.models.tasks import task_of
from fedsel_app.records.files import NpzError, read_arrays
from fedsel_app.records.run_folder import read_rounds
from fedsel_app.records.schema import OWN_APP, Row
from fedsel_app.wiring.configuration import AppConfig, resolve
from fedsel_app.wiring.named_files import run_folder
from simulation.engines import inline_engine
from simulation.engines.choice import choose
from simulation.engines.idle_settings import refuse_idle
from simulation.engines.run_folders import completed_rounds, resolve_resumed
from simulation.workbench.comparison.measures import metric_of
from simulation.workbench.comparison.results import Group
from simulation.workbench.comparison.runs import RecordedRun, read_recorded_run
from simulation.workbench.python_interface.keywords import listed, setting_values
from simulation.workbench.report.drawing import plot_metric
from simulation.workbench.report.one_run import RunDisplay

if TYPE_CHECKING:
    from typing import Unpack

    from simulation.workbench.python_interface.setting_keywords import SettingKeywords


CPU = torch.device("cpu")
LOGGER = logging.getLogger("fedsel")
TURN = threading.RLock()
"""Held by the thread whose run this process carries out."""


class RunResult(RecordedRun):
    """Run that was read from its folder: the result of `run` and `load_run`.

    Its models and its test data raise ConfigError if the data set is not available, if the run is one of a user's own
    Flower app, or if the file of a model is absent or damaged.
    """

    @property
    def settings(self) -> Mapping[str, Value]:
        """Setting key -> value."""
        return self.config

    @property
    def model(self) -> nn.Module:
        """Model of the last round, on the CPU and in eval mode. Its inputs must be normalised as in `test_data`."""
        return self._trained(self.folder / "model.npz")

    @property
    def best_model(self) -> nn.Module:
        """Model of the round with the best score, on the CPU and in eval mode."""
        return self._trained(self.folder / "best-model.npz")

    @property
    def test_data(self) -> tuple[Inputs, Tensor]:
        """Samples of the server's test set, normalised for the model, and their targets."""
        config = self._app_config()
        with of_a_run():
            data = device_data(config.data, config.preprocessing, config.run.seed, CPU)
        [batch] = data.test_batches(len(data.y_test))
        return batch

    def client_model(self, client: int, states: Path | None = None) -> nn.Module:
        """Model of the last round with the layers that stay with a client ('local-layers'), on the CPU, in eval mode.

        `states` is a folder with the client's states ('state-dir'); None: the run folder. Raises ConfigError if it has
        none of this client.
        """
        folder = (states or self.folder) / STATE_FOLDER
        files = folder.glob(f"*/client-{client}/round-*.npz")
        found = max(files, key=lambda path: path.stat().st_mtime_ns, default=None)
        if found is None:
            raise ConfigError(
                f"Client {client} has no state in {folder}: it never trained, or keeps it on its own machine: "
                "set --states to its 'state-dir'."
            )
        return self._trained(self.folder / "model.npz", found)

    def _trained(self, path: Path, state: Path | None = None) -> nn.Module:
        """The model in a file, with the local layers in the state of a client."""
        config = self._app_config()
        try:
            with path.open("rb") as file:
                arrays = read_arrays(file)
            own_layers = {} if state is None else local_of(read_arrays(BytesIO(state.read_bytes())))
        except FileNotFoundError as error:
            raise ConfigError(f"There is no {path} yet: the run is not finished.") from error
        except (NpzError, OSError) as error:
            raise ConfigError(f"The model {path} cannot be read: {error}.") from error
        with of_a_run():
            dataset = load(config.data, config.run.seed)
            task = task_of(dataset, CPU, config.task)
            local = config.calibration.local
            model = building.build_flat(config.run.model, dataset, config.run.seed, CPU, task, local=local)
        try:
            model.load(arrays["parameters"], arrays["buffers"])
            model.load_local(own_layers)
            if model.lacking and state is None:
                LOGGER.warning(
                    "This model lacks %s: they are as they were built, and each client has its own (client_model, or"
                    " --client).",
                    ", ".join(model.lacking),
                )
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"The model {path} does not fit what the 'model' {config.run.model} builds now ({error}). Restore its "
                "code of the run."
            ) from error
        return model.module.eval()

    def _app_config(self) -> AppConfig:
        if self.settings.get("data") == OWN_APP:
            raise ConfigError(
                "The model and data of this run are from your own Flower app: load model.npz with its code."
            )
        return AppConfig.from_values(self.settings)

    def plot(self) -> Figure:
        """Figure of the score against rounds, seconds, bytes sent and client updates."""
        alone = Group("", {self.strategy: (self,)}, self.strategy)
        return plot_metric(alone, metric_of([self])).figure


def simulate_inline(config: AppConfig, on_round: Callable[[Row], None]) -> Path:
    """Simulate a run with the inline engine and return its folder. Ctrl-C raises KeyboardInterrupt.

    Runs in several threads take turns: they share torch's global generator.
    """
    with TURN, _restored():
        try:
            return inline_engine.simulate(config, on_round)
        except SystemExit as ended:
            raise KeyboardInterrupt from ended


@contextmanager
def _restored() -> Iterator[None]:
    """After the block, restore what a run changes in its process: threads, torch's modes."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # the call imports torch's compiler
            torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = benchmark


@listed
def run(
    strategy: str | None = None,
    *,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    settings: Mapping[str, Value] | None = None,
    on_round: Callable[[Row], None] | None = None,
    progress: bool = True,
    **keywords: "Unpack[SettingKeywords]",
) -> RunResult:
    """Simulate one run on this machine. `fedsel run` with the same settings gives bit-identical results.

    The run is carried out in this process, without Ray.

    Raises ConfigError for settings that cannot be run or need Ray, or a folder that is in use. Raises KeyboardInterrupt
    on Ctrl-C. The finished rounds are kept, and `run(resume=FOLDER)` resumes the run.

    Parameters
    ----------
    strategy : selection method: a name from `fedsel methods`, or package.module:Class. The default is that of the
        preset, or hetero-select.
    seed : seed of all random numbers; 42 by default
    out : run folder; by default one in runs/, named by method, data, seed and time
    resume : folder of an interrupted run to resume. Only settings without effect on results, such as `engine`, may be
        added.
    settings : further settings by their keys, as in `--set`: needed for the settings of your own method
    on_round : called with the record of each finished round
    progress : show a bar on a terminal; elsewhere print a line per round
    keywords : settings, with underscores for dashes (`local_steps=10`), and after a method's name (`oort_explore=0.5`)
    """
    values = setting_values(keywords, settings)
    values |= {} if strategy is None else {"strategy": strategy}
    values |= {} if seed is None else {"seed": plain_value(seed)}
    values |= {} if out is None else {"out": str(Path(out).expanduser().absolute())}
    with of_a_run():
        if resume is None:
            config = resolve(values)
            refuse_idle(values, [config.values()], str(values.get("preset", "")))
        else:
            config = resolve_resumed(Path(resume).expanduser(), values)
        choice = choose(config, cores=1)
        if choice.engine == "ray":
            raise ConfigError(
                f"run() simulates in this process, and this run needs Ray, as {choice.reason}: use compare()."
            )
        completed = completed_rounds(run_folder(config)) if resume is not None else 0
        measured = config.network.links == "measured"
        display = RunDisplay(config.run.rounds, Console(), completed, measured=measured) if progress else None

        def show(row: Row) -> None:
            if display is not None:
                display.show(row)
            if on_round is not None:
                on_round(row)

        return load_run(simulate_inline(config, show))


def load_run(folder: str | Path) -> RunResult:
    """Read a run from its folder, also one of `fedsel run`, and also an unfinished one.

    Raises ConfigError if there is no run, the run has no finished round, or a file is damaged.
    """
    path = Path(folder).expanduser().absolute()
    read_rounds(path)
    result = read_recorded_run(path, path.name, {}, RunResult)
    if result is None or not result.rows:
        raise ConfigError(f"{path} has no run with a finished round: there is nothing to read yet.")
    return result
