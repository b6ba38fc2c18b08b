"""Deployed runs: processes started on this machine, or a run submitted to a SuperLink that already runs."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fedsel_app.config import ConfigError, Value
from simulation.deployment.command_lines import CONNECTION, commands_elsewhere
from simulation.deployment.flower_cli import DeploymentError, submit
from simulation.deployment.full_disk import refuse_full
from simulation.deployment.local_deployment import Deployment, app_folder
from simulation.experiments.configuration import AppConfig, known_defaults
from simulation.experiments.node_configuration import ALLOWED, code_in, node_config_text
from simulation.federation.folders import Federation
from simulation.report.run_report import report_run
from simulation.wiring.folders import discard_states, run_folder
from simulation.wiring.preflight import refuse_unrunnable

COLOUR = re.compile(r"\x1b\[[\d;]*m")
FLOWERS_NOTES = re.compile(r"(\x1b\[\d+m)?INFO\b|Using SuperLink: |Successfully installed fedsel ")
"""What Flower says of itself where nothing is wrong, beside the lines of the run."""

UNKNOWN = "not found in the Flower configuration file"
"""Words of `flwr` on a connection that is none."""


def run_deployed(
    config: AppConfig,
    console: Console,
    federation: Federation | None = None,
    *,
    insecure: bool = False,
) -> int:
    """Start one SuperLink and `clients` SuperNodes on this machine, carry out the run, and end all of them.

    Connections use TLS and the SuperNodes authenticate themselves, with the keys of `federation`, made for the run if
    none is given; not if `insecure`.

    Returns
    -------
    int
        Exit code: 0 only if the run finished, which its summary says, whatever becomes of its processes then.

    Raises
    ------
    DeploymentError
        If a process ends, or does not start or answer.
    RecordError
        If that is for want of room on the disk.
    """
    own_data = config.data.data_path != ""
    config = with_absolute_paths(config, local=True)
    refuse_unrunnable(config)
    folder = Path(config.records.out)
    if not config.records.resume and os.path.lexists(folder / "processes"):
        raise ConfigError(f"The run folder {folder} holds 'processes'; choose another 'out'.")
    config = replace(
        config,
        records=replace(config.records, state_dir=""),
        enrolment=replace(config.enrolment, node_keys=not insecure),
    )
    clients = config.run.clients
    nodes = client_nodes(config, folder)
    console.print(f"Starting one SuperLink and {clients} SuperNodes; their logs are in {folder / 'processes/logs'}")
    app, place = app_folder(), folder / "processes"
    try:
        with Deployment(place, clients, nodes, federation, insecure=insecure, app=app) as deployment:
            result = submit(app, CONNECTION, app_values(config), deployment.flwr_home, None, show_line)
    except DeploymentError:
        refuse_full(folder)
        raise
    if not result.completed and not (folder / "summary.json").exists():
        refuse_full(folder)
        console.print(result.sentence, style="red", markup=False, soft_wrap=True)
        if (folder / "config.json").exists():
            console.print(f"Go on with: fedsel deploy --resume {folder}", markup=False, soft_wrap=True)
        return 1
    discard_states(folder)
    report_run(folder, console)
    elsewhere = {"links": "measured", "node-keys": not insecure}
    here = {"out", "state-dir", "clients"} | (set() if own_data else {"data-path"})
    defaults = known_defaults() | elsewhere
    changed = {key: value for key, value in app_values(config).items() if defaults[key] != value and key not in here}
    own = client_settings(config, None, own_data=own_data)
    console.print("\nThe same on separate machines:", style="bold")
    for command in commands_elsewhere(clients, own, changed):
        console.print(command, markup=False, highlight=False, soft_wrap=True)
    return 0


def run_submitted(config: AppConfig, superlink: str, federation_config: str | None, console: Console) -> int:
    """Submit a run as `flwr run` does, and return an exit code: 0 only if the run finished.

    `superlink` names a connection of Flower's config.toml; `local` simulates, with one supernode for each client.
    """
    if superlink != "local" and federation_config is None:
        if config.records.state_dir and not config.records.resume:
            raise ConfigError(
                "A client takes 'state-dir' from its owner alone: give it to each SuperNode in its --node-config, "
                "and leave it out here."
            )
        config = replace(config, records=replace(config.records, state_dir=""))
    config = with_absolute_paths(config, local=superlink == "local")
    if superlink == "local" and federation_config is None:
        federation_config = f"num-supernodes={config.run.clients} client-resources-num-cpus=1"
    summary = Path(config.records.out) / "summary.json"
    finished_before = summary.exists()
    try:
        result = submit(app_folder(), superlink, app_values(config), None, federation_config, show_line)
    except DeploymentError as error:
        if UNKNOWN not in str(error):
            raise
        raise ConfigError(
            f"{superlink!r} is neither an admin's folder, which `fedsel provision` makes, nor a connection in Flower's "
            f"config.toml, which lies in FLWR_HOME (~/.flwr)."
        ) from error
    console.print(result.sentence, markup=False, soft_wrap=True)
    finished = summary.exists() and not finished_before
    if finished:
        report_run(summary.parent, console)
    return 0 if result.completed or finished else 1


def client_nodes(config: AppConfig, states: Path) -> list[str]:
    """Node configuration of each client: its part of the data, and `client_settings`."""
    clients, own = config.run.clients, client_settings(config, states)
    return [node_config_text(client, clients, own) for client in range(clients)]


def client_settings(config: AppConfig, states: Path | None, *, own_data: bool = True) -> dict[str, str]:
    """Settings that a client's owner gives: where its data and `states` lie, and code that a run may name.

    Without `states` they lie in the client's own folder; without `own_data` the data does in the data set's.
    """
    own: dict[str, str] = {}
    if own_data:
        own = {"data-path": config.data.data_path, "partition": config.partition.partition}
        if arguments := config.partition.partition_arguments:
            own["partition-arguments"] = arguments
    if states is not None:
        own["state-dir"] = str(states)
    if code := code_in(config.values()):
        own[ALLOWED] = " ".join(code)
    return own


def with_absolute_paths(config: AppConfig, *, local: bool) -> AppConfig:
    """Make every path that is set absolute, as server and clients run in directories of their own.

    If all of them run on this machine (`local`), the default data folder is this directory's data/.
    """

    def absolute(path: str) -> str:
        return str(Path(path).expanduser().absolute()) if path else ""

    return replace(
        config,
        records=replace(config.records, out=str(run_folder(config)), state_dir=absolute(config.records.state_dir)),
        data=replace(config.data, data_path=absolute(config.data.data_path or ("data" if local else ""))),
        search_loss=replace(config.search_loss, surrogate_path=absolute(config.search_loss.surrogate_path)),
    )


def app_values(config: AppConfig) -> dict[str, Value]:
    """Settings as Flower takes them: only those that the app's pyproject.toml has.

    Raises
    ------
    ConfigError
        If a user's own strategy has a setting that is not at its default, which Flower would refuse.
    """
    defaults = config.strategy.Config.defaults(f"{config.strategy.name}.")
    unknown = {key: value for key, value in config.values().items() if key not in known_defaults()}
    for key, value in unknown.items():
        if value != defaults[key]:
            raise ConfigError(
                f"Flower takes only settings of the app's pyproject.toml, and '{key}' is not there; "
                "add it to [tool.flwr.app.config], or change its default."
            )
    return {key: value for key, value in config.values().items() if key not in unknown}


def show_line(line: str) -> None:
    """Print a line of the run's log at once, but none of `FLOWERS_NOTES`; into a file or a pipe without colours."""
    if not FLOWERS_NOTES.match(line):
        print(line if sys.stdout.isatty() else COLOUR.sub("", line), flush=True)
