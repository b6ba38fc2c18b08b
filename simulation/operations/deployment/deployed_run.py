"""Deployed runs: on processes that are started here, or on a SuperLink that already runs."""

import errno
import os
import re
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.fedsel_folder import is_fedsel_folder
from fedsel_app.records.files import RecordError
from fedsel_app.records.reading import legible
from fedsel_app.wiring.configuration import AppConfig, known_defaults
from fedsel_app.wiring.node_configuration import ALLOWED, named_code, validate_deployment
from fedsel_app.wiring.server import run_folder
from fedsel_app.wiring.validation import validate_simulation
from simulation.engines.run_folders import discard_states
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.flower_cli import DeploymentError, node_config_text, submit_to_flower
from simulation.operations.deployment.local_deployment import Deployment
from simulation.operations.guard.command_lines import CONNECTION
from simulation.operations.machines.folders import FederationFolders

COLOUR = re.compile(r"(\x1b\[[\d;]*m)")
FLOWERS_NOTES = re.compile(r"(\x1b\[\d+m)?INFO\b|Using SuperLink: |Successfully installed fedsel ")
"""Beginnings of Flower's own lines in the log of a run, which say nothing about the run."""

UNKNOWN = "not found in the Flower configuration file"
"""Words of `flwr` about a connection that it does not know."""
PROBE_BYTES = 1 << 16
Report = Callable[[Path, Console], None]
"""Prints the report of a run in its folder."""


def run_deployed(
    config: AppConfig,
    console: Console,
    report: Report,
    federation: FederationFolders | None = None,
    *,
    insecure: bool = False,
) -> int:
    """Carry out a run with one SuperLink and `clients` SuperNodes on this machine, and end all of them.

    Connections use TLS, and the SuperNodes authenticate themselves with the keys of `federation`, which are made for
    the run by default. With `insecure` there is neither TLS nor authentication. At the end `report` is called.

    Returns
    -------
    int
        Exit code: 0 only if the run finished. The run's summary determines it, not a later failure of a process.

    Raises
    ------
    DeploymentError
        If a process ends, does not start or does not answer.
    RecordError
        If the reason is a full disk.
    """
    if insecure and config.privacy.masked:
        raise ConfigError("Leave out --insecure: with 'secure-sums' clients sign with the keys that it has not.")
    config = _deployable(config, node_keys=not insecure)
    folder = Path(config.records.out)
    processes = folder / "processes"
    nodes = client_nodes(config, folder, federation or FederationFolders(processes / "federation"))
    console.print(
        f"Starting one SuperLink and {len(nodes)} SuperNodes. Logs: {processes / 'logs'}", markup=False, soft_wrap=True
    )
    try:
        with Deployment(processes, nodes, federation, insecure=insecure, app=app_folder()) as deployment:
            result = submit_to_flower(
                app_folder(), CONNECTION, app_values(config), deployment.flwr_home, None, show_line
            )
    except DeploymentError:
        refuse_full(folder)
        raise
    if not result.completed and not (folder / "summary.json").exists():
        refuse_full(folder)
        console.print(result.sentence, style="red", markup=False, soft_wrap=True)
        if (folder / "config.json").exists():
            console.print(f"Go on with: fedsel deploy --resume {folder}", markup=False, soft_wrap=True)
        return 1
    if not config.calibration.local:
        discard_states(folder)
    report(folder, console)
    return 0


def _deployable(config: AppConfig, *, node_keys: bool) -> AppConfig:
    """Settings for processes on this machine. Raises ConfigError if the run is not possible."""
    # Loads torch, which `fedsel submit` and `fedsel status` do not need.
    from simulation.engines.preflight import refuse_unrunnable

    validate_deployment(config)
    config = with_absolute_paths(config, local=True)
    refuse_unrunnable(config)
    folder = Path(config.records.out)
    # A deployment that ended before the run had settings is started again in its folder.
    begun = is_fedsel_folder(folder / "processes") and not (folder / "config.json").exists()
    if not config.records.resume and os.path.lexists(folder / "processes") and not begun:
        raise ConfigError(f"The run folder {folder} contains 'processes'. Choose another 'out'.")
    records, enrolment = replace(config.records, state_dir=""), replace(config.enrolment, node_keys=node_keys)
    return replace(config, records=records, enrolment=enrolment)


def run_submitted(
    config: AppConfig, superlink: str, federation_config: str | None, console: Console, report: Report
) -> int:
    """Submit a run as `flwr run` does, and wait for its end.

    Parameters
    ----------
    config : settings of the run
    superlink : connection in Flower's config.toml. `local` simulates the run with one supernode for each client.
    federation_config : federation configuration of a simulation, as for `flwr run`
    console : where the outcome and the report are printed
    report : prints the report of the finished run

    Returns
    -------
    int
        Exit code: 0 only if the run finished.
    """
    local = superlink == "local"
    if not local and federation_config is None:
        validate_deployment(config)
        if config.records.state_dir and not config.records.resume:
            raise ConfigError(
                "A client takes 'state-dir' only from its owner. Remove it here, and set it in the --node-config of "
                "each SuperNode."
            )
        config = replace(config, records=replace(config.records, state_dir=""))
    config = with_absolute_paths(config, local=local)
    if local:
        validate_simulation(config, config.execution, config.enrolment)
        federation_config = federation_config or f"num-supernodes={config.run.clients} client-resources-num-cpus=1"
    summary = Path(config.records.out) / "summary.json"
    finished_before = summary.exists()
    try:
        result = submit_to_flower(app_folder(), superlink, app_values(config), None, federation_config, show_line)
    except DeploymentError as error:
        if UNKNOWN not in str(error):
            raise
        raise ConfigError(
            f"{superlink!r} is neither an admin's folder, which `fedsel provision` makes, nor a connection in Flower's "
            f"config.toml, which is in FLWR_HOME (~/.flwr)."
        ) from error
    console.print(result.sentence, markup=False, soft_wrap=True)
    finished = summary.exists() and not finished_before
    if finished:
        report(summary.parent, console)
    return 0 if result.completed or finished else 1


def client_nodes(config: AppConfig, states: Path, federation: FederationFolders | None = None) -> list[str]:
    """Node configuration of each client: its partition id, and the settings that only a client's owner may give.

    Parameters
    ----------
    config : settings of the run. The code that they name becomes the code that the client allows.
    states : folder of the clients' states
    federation : folders in which the clients find their identities for secure sums
    """
    settings = {"data-path": config.data.data_path, "partition": config.partition.partition, "state-dir": str(states)}
    if arguments := config.partition.partition_arguments:
        settings["partition-arguments"] = arguments
    if code := [name for _, name in named_code(config.values())]:
        settings[ALLOWED] = " ".join(code)
    masked = federation if config.privacy.masked else None
    identities: list[dict[str, str]] = [
        {} if masked is None else {"identity-dir": str(masked.client(client).absolute())}
        for client in range(config.run.clients)
    ]
    return [node_config_text(client, config.run.clients, settings | own) for client, own in enumerate(identities)]


def with_absolute_paths(config: AppConfig, *, local: bool) -> AppConfig:
    """Make all paths absolute, because server and clients run in other directories.

    If all of them run on this machine (`local`), the default data folder is ``data`` in this directory.
    """

    def absolute(path: str) -> str:
        return str(Path(path).expanduser().absolute()) if path else ""

    return replace(
        config,
        run=replace(config.run, initial_model=absolute(config.run.initial_model)),
        records=replace(config.records, out=str(run_folder(config)), state_dir=absolute(config.records.state_dir)),
        data=replace(config.data, data_path=absolute(config.data.data_path or ("data" if local else ""))),
        search_loss=replace(config.search_loss, surrogate_path=absolute(config.search_loss.surrogate_path)),
        network=replace(config.network, spread_table=absolute(config.network.spread_table)),
        availability=replace(config.availability, availability_trace=absolute(config.availability.availability_trace)),
    )


def app_values(config: AppConfig) -> dict[str, Value]:
    """Settings that Flower accepts, which are those in the app's pyproject.toml.

    Raises ConfigError if another setting, of a user's own strategy, is not at its default. Flower would refuse it.
    """
    defaults = config.strategy.Config.defaults(f"{config.strategy.name}.")
    unknown = {key: value for key, value in config.values().items() if key not in known_defaults()}
    for key, value in unknown.items():
        if value != defaults[key]:
            raise ConfigError(
                f"Flower accepts only settings in the app's pyproject.toml, and '{key}' is not there. "
                "Add it to [tool.flwr.app.config], or change its default in the strategy."
            )
    return {key: value for key, value in config.values().items() if key not in unknown}


def show_line(line: str) -> None:
    """Print a line of the run's log, without colours if the output is no terminal. Leave `FLOWERS_NOTES` out.

    A terminal gets no other escape character of the server.
    """
    if not FLOWERS_NOTES.match(line):
        parts = COLOUR.split(line)
        parts[1::2] = parts[1::2] if sys.stdout.isatty() else [""] * (len(parts) // 2)
        parts[::2] = map(legible, parts[::2])
        print("".join(parts), flush=True)


def refuse_full(folder: Path) -> None:
    """Raise RecordError if a file in the run folder has the largest allowed size, or no other file fits on the disk."""
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        for path in sorted(folder.rglob("*")):
            if limit_bytes != resource.RLIM_INFINITY and path.is_file() and path.stat().st_size >= limit_bytes:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            left = PROBE_BYTES
            while left:
                left -= probe.write(bytes(left))
    except OSError as error:
        again = (
            f"continue with: fedsel deploy --resume {folder}" if (folder / "config.json").exists() else "start again"
        )
        raise RecordError(
            f"{error.filename or folder} cannot be written: {error.strerror}. The records so far are complete. Free "
            f"disk space or raise the limit (file size or quota), then {again}"
        ) from error
