"""Deployed runs: on processes that are started here, or on a SuperLink that already runs."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.fedsel_folder import is_fedsel_folder
from fedsel_app.records.reading import legible
from fedsel_app.records.run_folder import UnkeptRecords
from fedsel_app.wiring.client_settings import ALLOWED, named_code, validate_deployment
from fedsel_app.wiring.configuration import AppConfig, known_defaults
from fedsel_app.wiring.named_files import run_folder
from simulation.engines.run_folders import discard_states
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.flower_cli import node_config_text, submit_to_flower
from simulation.operations.deployment.local_deployment import FEDERATION, Deployment
from simulation.operations.machines.folders import FederationFolders

COLOUR = re.compile(r"\x1b\[[\d;]*m")
FLOWERS_NOTES = re.compile(r"INFO\b|Using SuperLink: |Successfully installed fedsel ")
"""Beginnings of Flower's own lines in the log of a run, which say nothing about the run."""
Report = Callable[[Path, Console], None]
"""Prints the report of a run in its folder."""


def run_deployed(config: AppConfig, console: Console, report: Report) -> int:
    """Carry out a run with one SuperLink and `clients` SuperNodes on this machine, and end all of them.

    Connections use TLS, and the SuperNodes authenticate themselves with keys, which are made for the run. At the end
    `report` is called.

    Returns the exit code: 0 only if the run finished. The run's summary determines it, not a later failure of a
    process. Raises DeploymentError if a process ends, does not start or does not answer.
    """
    config = _deployable(config)
    folder = Path(config.records.out)
    processes = folder / "processes"
    nodes = client_nodes(config, folder, FederationFolders(processes / FEDERATION))
    console.print(
        f"Starting one SuperLink and {len(nodes)} SuperNodes. Logs: {processes / 'logs'}", markup=False, soft_wrap=True
    )
    with Deployment(processes, nodes, app=app_folder()) as deployment:
        result = submit_to_flower(app_folder(), app_values(config), deployment.flwr_home, show_line)
    if not result.completed and not (folder / "summary.json").exists():
        console.print(result.sentence, style="red", markup=False, soft_wrap=True)
        if (folder / "config.json").exists():
            console.print(f"Go on with: fedsel deploy --resume {folder}", markup=False, soft_wrap=True)
        return 1
    if not config.calibration.local:
        discard_states(folder)
    report(folder, console)
    return 0


def _deployable(config: AppConfig) -> AppConfig:
    """Settings for processes on this machine. Raises ConfigError if the run is not possible."""
    # Loads torch, which `fedsel submit` and `fedsel status` do not need.
    from fedsel_app.wiring.server import make_run_context
    from simulation.engines.preflight import refuse_unrunnable

    validate_deployment(config)
    config = with_absolute_paths(config)
    refuse_unrunnable(config)
    make_run_context(config, UnkeptRecords())
    folder = Path(config.records.out)
    # A deployment that ended before the run had settings is started again in its folder.
    begun = is_fedsel_folder(folder / "processes") and not (folder / "config.json").exists()
    if not config.records.resume and os.path.lexists(folder / "processes") and not begun:
        raise ConfigError(f"The run folder {folder} contains 'processes'. Choose another 'out'.")
    records, enrolment = replace(config.records, state_dir=""), replace(config.enrolment, node_keys=True)
    return replace(config, records=records, enrolment=enrolment)


def client_nodes(config: AppConfig, states: Path, federation: FederationFolders | None = None) -> list[str]:
    """Node configuration of each client: its partition id, and the settings that only a client's owner may give.

    Parameters
    ----------
    config : settings of the run. The code that they name becomes the code that the client allows.
    states : folder of the clients' states
    federation : folders in which the clients find their identities for secure sums
    """
    settings = {"data-path": config.data.data_path, "partition": config.partition.partition, "state-dir": str(states)}
    if code := [name for _, name in named_code(config.values())]:
        settings[ALLOWED] = " ".join(code)
    nodes = []
    for client in range(config.run.clients):
        if config.privacy.masked and federation is not None:
            settings["identity-dir"] = str(federation.client(client).absolute())
        nodes.append(node_config_text(client, config.run.clients, settings))
    return nodes


def with_absolute_paths(config: AppConfig) -> AppConfig:
    """Make all paths absolute, because server and clients run in other directories.

    The default data folder is ``data`` in this directory.
    """

    def absolute(path: str) -> str:
        return str(Path(path).expanduser().absolute()) if path else ""

    return replace(
        config,
        run=replace(config.run, initial_model=absolute(config.run.initial_model)),
        records=replace(config.records, out=str(run_folder(config)), state_dir=absolute(config.records.state_dir)),
        data=replace(config.data, data_path=absolute(config.data.data_path or "data")),
        search_loss=replace(config.search_loss, surrogate_path=absolute(config.search_loss.surrogate_path)),
        availability=replace(config.availability, availability_trace=absolute(config.availability.availability_trace)),
    )


def app_values(config: AppConfig) -> dict[str, Value]:
    """Settings that Flower accepts, which are those in the app's pyproject.toml.

    Raises ConfigError if another setting, of a user's own strategy, is not at its default. Flower would refuse it.
    """
    defaults, known = config.strategy.Config.defaults(f"{config.strategy.name}."), known_defaults()
    unknown = {key: value for key, value in config.values().items() if key not in known}
    for key, value in unknown.items():
        if value != defaults[key]:
            raise ConfigError(
                f"Flower accepts only settings in the app's pyproject.toml, and '{key}' is not there. "
                "Add it to [tool.flwr.app.config], or change its default in the strategy."
            )
    return {key: value for key, value in config.values().items() if key not in unknown}


def show_line(line: str) -> None:
    """Print a line of the run's log without escape characters. Leave `FLOWERS_NOTES` out."""
    plain = legible(COLOUR.sub("", line))
    if not FLOWERS_NOTES.match(plain):
        print(plain, flush=True)
