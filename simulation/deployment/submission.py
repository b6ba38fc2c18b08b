"""Submission of runs to a federation, and its status, with the admin's folder."""

import json
import re
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.fedsel_folder import make_private_folder
from fedsel_app.wiring.configuration import AppConfig, resolve
from simulation.deployment.app_folder import app_folder
from simulation.deployment.connection import obstacle
from simulation.deployment.deployed_run import app_values, show_line
from simulation.deployment.flower_cli import DeploymentError, environment, flwr, submit_to_flower, tool
from simulation.federation.folders import SIGNING
from simulation.federation.machine import Machine, read_machine
from simulation.guard.app_signature import is_signed
from simulation.guard.command_lines import CONNECTION, connection_toml
from simulation.guard.control_account import keep_token

SUBMITTED = "submitted"
"""Folder in the admin's folder with the settings of each submitted run, by the run's name."""
ROUND = re.compile(r"round (\d+) of (\d+): (.*)")
LOG_S = 20.0
STATES = {"online": "connected", "offline": "not connected", "registered": "not connected yet"}


def run_defaults(folder: Path) -> dict[str, Value]:
    """Default settings of a run that is submitted from this admin's folder."""
    return {"clients": read_machine(folder, "admin").clients, "links": "measured", "node-keys": True}


def resumed(folder: Path, name: str, values: Mapping[str, Value]) -> AppConfig:
    """Configuration that continues a run which was submitted from this admin's folder.

    Raises
    ------
    ConfigError
        If `values` holds other settings, or no run of this name was submitted from the folder.
    """
    if values:
        raise ConfigError(f"A resumed run keeps its settings. Leave out {', '.join(sorted(values))}.")
    known = sorted(path.stem for path in (folder / SUBMITTED).glob("*.json"))
    if Path(name).name not in known:
        raise ConfigError(f"No run {name!r} was submitted from {folder}. Its runs are: {', '.join(known) or 'none'}.")
    before = json.loads((folder / SUBMITTED / f"{Path(name).name}.json").read_text(encoding="utf-8"))
    return resolve({**before, "resume": True})


def submit_to_federation(folder: Path, config: AppConfig, console: Console) -> int:
    """Carry out a run with the federation. The server writes its records to ``runs/NAME`` in its folder.

    Returns
    -------
    int
        Exit code: 0 only if the run finished.

    Raises
    ------
    ConfigError
        If the app has changed since it was signed, or a setting is not allowed for separate machines.
    DeploymentError
        If the server cannot be reached, or does not answer.
    """
    machine = read_machine(folder, "admin")
    if config.records.state_dir:
        raise ConfigError("A client keeps its state in its own folder. Leave 'state-dir' out.")
    app, signing = app_folder(), folder / SIGNING
    if not is_signed(app, signing):
        raise ConfigError(
            f"The app of this fedsel has changed since it was signed, so the clients would refuse it. Read it, sign "
            f"it with `fedsel sign --out {signing}`, and copy signatures.json from there to the server's folder."
        )
    name = Path(config.records.out).name or f"{config.run.strategy}-s{config.run.seed}-{datetime.now():%Y%m%d-%H%M%S}"
    name = re.sub(r"[^\w.-]", "-", name)
    config = replace(config, records=replace(config.records, out=f"runs/{name}"))
    home = _home(folder, machine)
    make_private_folder(folder / SUBMITTED)
    settings = {key: value for key, value in config.values().items() if key != "resume"}
    (folder / SUBMITTED / f"{name}.json").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    console.print(f"Run {name}. {machine.server} writes its records to server/runs/{name}.", soft_wrap=True)
    go_on = f"Go on with: fedsel submit {folder} --resume {name}"
    try:
        result = submit_to_flower(app, CONNECTION, app_values(config), home, None, show_line)
    except DeploymentError as error:
        raise DeploymentError(f"{error} {go_on}") from error
    if result.completed:
        console.print(
            f"{result.sentence} Make its report on {machine.server} with: fedsel report server/runs/{name}",
            soft_wrap=True,
        )
        return 0
    console.print(result.sentence, style="red", markup=False, soft_wrap=True)
    console.print(go_on, markup=False, soft_wrap=True)
    return 1


def show_status(folder: Path, console: Console) -> None:
    """Print which clients are connected and since when, and the last round of each run that is not finished.

    Raises DeploymentError if the server cannot be reached or does not answer.
    """
    machine = read_machine(folder, "admin")
    variables = environment(_home(folder, machine))
    with ThreadPoolExecutor() as both:
        listed = both.submit(flwr, ["supernode", "list", CONNECTION], variables)
        runs = flwr(["list", CONNECTION], variables)["runs"]
        nodes = listed.result()["nodes"]
    console.print(f"Server {machine.server}, Flower {machine.flower}", highlight=False)
    table = Table("client", "state", "since")
    for node in sorted(nodes, key=lambda node: (len(node["owner-name"]), node["owner-name"])):
        if node["status"] in STATES:
            since = {"online": node["online-at"], "offline": node["offline-at"]}.get(node["status"], "")
            table.add_row(node["owner-name"], STATES[node["status"]], "" if since == "N/A" else since)
    console.print(table)
    unfinished = [run for run in runs if not run["status"].startswith("finished")]
    for run in unfinished:
        console.print(
            f"Run {run['run-id']}: {run['status']}, {_last_round(run, variables)}", highlight=False, soft_wrap=True
        )
    if not unfinished:
        console.print("No run is in progress.")


def _home(folder: Path, machine: Machine) -> Path:
    """Write the FLWR_HOME of `flwr` for the server. Raises DeploymentError if the server cannot be reached."""
    if (found := obstacle(machine, machine.control_port, folder / "ca.crt")) is not None:
        raise DeploymentError(found.sentence)
    home = folder / "flwr"
    make_private_folder(home)
    config = connection_toml(machine.control, (folder / "ca.crt").absolute())
    (home / "config.toml").write_text(config, encoding="utf-8")
    keep_token(home, machine.control, (folder / "token").read_text(encoding="utf-8"))
    return home


def _last_round(run: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """The last round in a run's log."""
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
        return f"the server sends no log within {LOG_S:.0f} s"
    rounds = ROUND.findall(log)
    return "round {} of {}: {}".format(*rounds[-1]) if rounds else "no round is finished yet"
