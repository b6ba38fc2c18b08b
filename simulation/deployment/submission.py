"""Submission of runs to a federation, and its status, from wherever the admin's folder is."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.own_folder import make_private_folder
from simulation.deployment.command_lines import CONNECTION, connection_toml
from simulation.deployment.connection import obstacle
from simulation.deployment.deployed_run import app_values, show_line
from simulation.deployment.flower_cli import DeploymentError, environment, flwr, submit, tool
from simulation.deployment.local_deployment import app_folder
from simulation.experiments.configuration import AppConfig, resolve
from simulation.federation.folders import SIGNING
from simulation.federation.machine import Machine, read_machine
from simulation.flower_internals.app_signature import is_signed
from simulation.flower_internals.control_account import keep_token

SUBMITTED = "submitted"
"""Folder of the admin's with the settings of each run, by the run's name."""
ROUND = re.compile(r"round (\d+) of (\d+): (.*)")
LOG_S = 20.0
STATES = {"online": "connected", "offline": "not connected", "registered": "not connected yet"}


def run_defaults(folder: Path) -> dict[str, Value]:
    """Settings of a run with the federation of this admin's folder where nobody says otherwise."""
    return {"clients": read_machine(folder, "admin").clients, "links": "measured", "node-keys": True}


def resumed(folder: Path, name: str, values: Mapping[str, Value]) -> AppConfig:
    """Configuration of a run that was submitted from this admin's folder, to be resumed at the server.

    Raises ConfigError for settings beside it, and for a run that was not.
    """
    if values:
        raise ConfigError(f"A resumed run goes on with its own settings; leave out {', '.join(sorted(values))}.")
    known = sorted(path.stem for path in (folder / SUBMITTED).glob("*.json"))
    if Path(name).name not in known:
        raise ConfigError(f"No run {name!r} was submitted from {folder}. There are {', '.join(known) or 'none'}.")
    before = json.loads((folder / SUBMITTED / f"{Path(name).name}.json").read_text(encoding="utf-8"))
    return resolve({**before, "resume": True})


def submit_run(folder: Path, config: AppConfig, console: Console) -> int:
    """Have the federation carry out a run; its records come to ``runs/NAME`` in the server's folder.

    Returns
    -------
    int
        Exit code: 0 only if the run finished.

    Raises
    ------
    ConfigError
        If nobody has signed the app as it is now, or the settings are not for machines of others.
    DeploymentError
        If the server cannot be reached, or does not answer.
    """
    machine = read_machine(folder, "admin")
    if config.records.state_dir:
        raise ConfigError("A client keeps its state in its own folder: leave 'state-dir' out.")
    app, signing = app_folder(), folder / SIGNING
    if not is_signed(app, signing):
        raise ConfigError(
            f"Nobody has signed this checkout's app as it is now, so the clients would not import it. Read it, then "
            f"`fedsel sign --out {signing}`, and copy signatures.json from there to the server's folder."
        )
    name = Path(config.records.out).name or f"{config.run.strategy}-s{config.run.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    name = re.sub(r"[^\w.-]", "-", name)
    config = replace(config, records=replace(config.records, out=f"runs/{name}"))
    home = _home(folder, machine)
    make_private_folder(folder / SUBMITTED)
    settings = {key: value for key, value in config.values().items() if key != "resume"}
    (folder / SUBMITTED / f"{name}.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    console.print(f"Run {name}; its records come to server/runs/{name} on {machine.server}.", soft_wrap=True)
    go_on = f"Go on with: fedsel submit {folder} --resume {name}"
    try:
        result = submit(app, CONNECTION, app_values(config), home, None, show_line)
    except DeploymentError as error:
        raise DeploymentError(f"{error} {go_on}") from error
    if result.completed:
        console.print(f"{result.sentence} On {machine.server}: fedsel report server/runs/{name}", soft_wrap=True)
        return 0
    console.print(result.sentence, style="red", markup=False, soft_wrap=True)
    console.print(go_on, markup=False, soft_wrap=True)
    return 1


def show_status(folder: Path, console: Console) -> None:
    """Print who is connected to the server, since when, and the runs that go on, with their last round.

    Raises DeploymentError if the server cannot be reached, or does not answer.
    """
    machine = read_machine(folder, "admin")
    variables = environment(_home(folder, machine))
    nodes = flwr(["supernode", "list", CONNECTION], variables)["nodes"]
    runs = flwr(["list", CONNECTION], variables)["runs"]
    console.print(f"Server {machine.server}, Flower {machine.flower}", highlight=False)
    table = Table("client", "state", "since")
    for node in sorted(nodes, key=lambda node: _natural(node["owner-name"])):
        if node["status"] in STATES:
            since = {"online": node["online-at"], "offline": node["offline-at"]}.get(node["status"], "")
            table.add_row(node["owner-name"], STATES[node["status"]], "" if since == "N/A" else since)
    console.print(table)
    going_on = [run for run in runs if not run["status"].startswith("finished")]
    for run in going_on:
        console.print(
            f"Run {run['run-id']}: {run['status']}, {_last_round(run, variables)}", highlight=False, soft_wrap=True
        )
    if not going_on:
        console.print("No run goes on.")


def _home(folder: Path, machine: Machine) -> Path:
    """FLWR_HOME of `flwr` with the connection to the server, which has been tried."""
    if (found := obstacle(machine, machine.control_port, folder / "ca.crt")) is not None:
        raise DeploymentError(found.sentence)
    home = folder / "flwr"
    make_private_folder(home)
    config = connection_toml(machine.control, (folder / "ca.crt").absolute())
    (home / "config.toml").write_text(config, encoding="utf-8")
    keep_token(home, machine.control, (folder / "token").read_text(encoding="utf-8"))
    return home


def _last_round(run: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """The last line of a round in the log of a run."""
    try:
        log = subprocess.run(
            [tool("flwr"), "log", str(run["run-id"]), CONNECTION, "--show"],
            env=dict(variables),
            capture_output=True,
            text=True,
            timeout=LOG_S,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        return "its log does not come"
    rounds = ROUND.findall(log)
    return "round {} of {}: {}".format(*rounds[-1]) if rounds else "no round yet"


def _natural(name: str) -> list[int | str]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]
