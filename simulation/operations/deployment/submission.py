"""Submission of runs to a federation, and its status, with the admin's folder."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsel_app.config import ConfigError, Value
from fedsel_app.records.fedsel_folder import make_private_folder
from fedsel_app.records.files import write_text
from fedsel_app.records.reading import legible, read_object
from fedsel_app.wiring.client_settings import validate_deployment
from fedsel_app.wiring.configuration import AppConfig, resolve
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.deployed_run import app_values, show_line
from simulation.operations.deployment.flower_cli import (
    DeploymentError,
    NoAnswerError,
    environment,
    flwr,
    submit_to_flower,
    tool,
)
from simulation.operations.guard.app_signature import is_signed
from simulation.operations.guard.control_account import keep_token
from simulation.operations.guard.transport import CONNECTION, connection_toml
from simulation.operations.machines.checks import CERTIFICATE, check_folder, obstacle
from simulation.operations.machines.folders import SIGNING
from simulation.operations.machines.machine import Machine, read_machine

SUBMITTED = "submitted"
"""Folder in the admin's folder with the settings of each submitted run, by the run's name."""
NAMES = ".names"
"""File in that folder: Flower's id of a run -> its name."""
NEWS = re.compile(r"round \d+ of \d+: .*|\d+ of \d+ clients .*; waiting until \d\d:\d\d|the server sends no log.*")
"""Lines of a run's log that `fedsel status` shows."""
LEFT_OUT = re.compile(
    r"Round (\d+): (?:Node .* failed: Client|(?:Node \S+ as )?client) (\d+)"
    r"(?: is left out|: left out)?[:,] (?!taken)(.*)"
)
"""Lines of a run's log about a client whose data or whose update the server does not use."""
LOG_S = 20.0
STATES = {"online": "connected", "offline": "not connected", "registered": "not connected yet"}


def run_defaults(folder: Path) -> dict[str, Value]:
    """Default settings of a run that is submitted from this admin's folder."""
    return {"clients": read_machine(folder, "admin").clients, "links": "measured", "node-keys": True}


def resumed(folder: Path, name: str, values: Mapping[str, Value]) -> AppConfig:
    """Configuration that continues a run which was submitted from this admin's folder.

    Raises ConfigError if `values` holds other settings, or no run of this name was submitted from the folder.
    """
    if values:
        raise ConfigError(f"A resumed run keeps its settings. Leave out {', '.join(sorted(values))}.")
    runs = sorted(path.stem for path in (folder / SUBMITTED).glob("*.json"))
    if Path(name).name not in runs:
        raise ConfigError(f"No run {name!r} was submitted from {folder}. Its runs are: {', '.join(runs) or 'none'}.")
    before = read_object(_settings_file(folder, Path(name).name)) or {}
    return resolve({**before, "resume": True})


def submit_to_federation(folder: Path, config: AppConfig, console: Console) -> int:
    """Carry out a run with the federation. The server writes its records to ``runs/NAME`` in its folder.

    Returns the exit code: 0 only if the run finished. Raises ConfigError if the app has changed since it was signed, or
    a setting is not allowed for separate machines. Raises DeploymentError if the server cannot be reached, or does not
    answer.
    """
    machine = _admin(folder)
    validate_deployment(config)
    if config.records.state_dir:
        raise ConfigError("A client keeps its state in its own folder. Leave 'state-dir' out.")
    app, signing = app_folder(), folder / SIGNING
    if not is_signed(app, signing):
        raise ConfigError(
            f"The app of this fedsel has changed since it was signed, so the clients would refuse it. Read it, sign "
            f"it with `fedsel sign --out {signing}`, and copy signatures.json from there to the server's folder."
        )
    name = _run_name(config)
    settings = _settings_file(folder, name)
    if settings.exists() and not config.records.resume:
        raise ConfigError(f"A run {name} was submitted before. Choose another 'out', or go on with it: --resume {name}")
    config = replace(config, records=replace(config.records, out=f"runs/{name}"))
    home = _home(folder, machine)
    make_private_folder(folder / SUBMITTED)
    write_text(settings, json.dumps({key: value for key, value in config.values().items() if key != "resume"}))
    console.print(f"Run {name}. {machine.server} writes its records to server/runs/{name}.", soft_wrap=True)
    go_on = f"Go on with: fedsel submit {folder} --resume {name}"
    begun = trained = False

    def show(line: str) -> None:
        nonlocal trained
        trained = trained or re.search(r"round \d+ of \d+: ", line) is not None
        show_line(line)

    def started(run_id: int) -> None:
        nonlocal begun
        begun = True
        names = read_object(folder / SUBMITTED / NAMES) or {}
        write_text(folder / SUBMITTED / NAMES, json.dumps({**names, str(run_id): name}))

    try:
        result = submit_to_flower(app, app_values(config), home, show, started)
    except DeploymentError as error:
        if begun or isinstance(error, NoAnswerError):
            raise DeploymentError(f"{error} {go_on}") from error
        if not config.records.resume:
            settings.unlink()
        raise
    except KeyboardInterrupt:
        end = f"`fedsel status {folder}` shows it; `fedsel stop {folder} {name}` ends it."
        console.print(f"\nThe run {name} goes on, if it has begun. {end}", markup=False, soft_wrap=True)
        raise
    if result.completed:
        console.print(
            f"The run is finished. Make its report on {machine.server} with: fedsel report server/runs/{name}",
            soft_wrap=True,
        )
        return 0
    console.print(result.sentence, style="red", markup=False, soft_wrap=True)
    trained = trained or config.records.resume
    again = go_on if trained else "No round was finished: correct the cause, and submit a new run (another --out)."
    console.print(again, markup=False, soft_wrap=True)
    return 1


def show_status(folder: Path, console: Console) -> None:
    """Print which clients are connected, which were left out, and the last round of each run in progress. Without any,
    print that of the run that began last.

    Raises DeploymentError if the server cannot be reached or does not answer.
    """
    machine = _admin(folder)
    variables = environment(_home(folder, machine))
    runs, nodes = _runs(folder, variables), flwr(["supernode", "list", CONNECTION], variables)["nodes"]
    unfinished = _unfinished(runs)
    shown = unfinished or dict(list(runs.items())[:1])
    console.print(f"Server {machine.server}, Flower {machine.flower}", highlight=False)
    logs = {run_id: _log(run_id, variables) for run_id in shown}
    left_out = {name: reason for log in logs.values() for name, reason in last_left_out(log).items()}
    table = Table("client", "state", *["last left out"] * bool(left_out))
    for node in sorted(legible(nodes), key=lambda node: (len(node["owner-name"]), node["owner-name"])):
        if node["status"] in STATES:
            reason = [Text(left_out.get(node["owner-name"], ""))] * bool(left_out)
            table.add_row(Text(node["owner-name"]), STATES[node["status"]], *reason)
    console.print(table)
    if not unfinished:
        console.print("No run is in progress.")
    for run_id, (name, status) in shown.items():
        line = f"Run {name}: {status}, {last_news(logs[run_id])}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def stop_run(folder: Path, name: str | None, console: Console) -> None:
    """End the run `name`, or the only one in progress. What it has recorded is kept, and it can be resumed.

    Raises ConfigError if there is no such run in progress, or without a `name` more than one; DeploymentError if the
    server cannot be reached or does not answer.
    """
    variables = environment(_home(folder, _admin(folder)))
    unfinished = _unfinished(_runs(folder, variables))
    named = ", ".join(run for run, _ in unfinished.values()) or "none"
    chosen = [run_id for run_id, (run, _) in unfinished.items() if name in (None, run, run_id)]
    if len(chosen) != 1:
        raise ConfigError(f"Name the run to stop: `fedsel stop {folder} RUN`. Runs in progress: {named}.")
    [run_id], run = chosen, unfinished[chosen[0]][0]
    flwr(["stop", run_id, CONNECTION], variables)
    text = f"The run {run} is stopped. Its records are kept. Go on with: fedsel submit {folder} --resume {run}"
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _run_name(config: AppConfig) -> str:
    """Name of a new or resumed run, which is also its folder's below ``runs/`` on the server.

    Raises ConfigError if `out` is not the name of a folder.
    """
    if not config.records.out:
        name = f"{config.run.strategy}-s{config.run.seed}-{datetime.now():%Y%m%d-%H%M%S}"
        return re.sub(r"[^\w.-]", "-", name)
    name = Path(config.records.out).name
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise ConfigError(
            "On a federation, 'out' must be a name of letters, digits, '.', '_' and '-', with a letter or digit first, "
            f"because the server writes the records to runs/NAME. Got {name!r}."
        )
    return name


def _settings_file(folder: Path, name: str) -> Path:
    """File with the settings of a submitted run."""
    return folder / SUBMITTED / f"{name}.json"


def _runs(folder: Path, variables: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Id -> name and status of each run, the last one first. A run of another admin's folder has its id as name."""
    names = read_object(folder / SUBMITTED / NAMES) or {}
    runs = legible(flwr(["list", CONNECTION], variables)["runs"])
    return {run["run-id"]: (names.get(run["run-id"], run["run-id"]), run["status"]) for run in runs}


def _unfinished(runs: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Those of `runs` (id -> name and status) that have not ended."""
    return {run_id: (name, status) for run_id, (name, status) in runs.items() if not status.startswith("finished")}


def _admin(folder: Path) -> Machine:
    """Read the admin's folder. Raises ConfigError if it is damaged."""
    machine = read_machine(folder, "admin")
    check_folder(folder, machine)
    return machine


def _home(folder: Path, machine: Machine) -> Path:
    """Write the FLWR_HOME of `flwr` for the server. Raises DeploymentError if the server cannot be reached."""
    if (wrong := obstacle(machine, machine.control_port, folder / CERTIFICATE)) is not None:
        raise DeploymentError(wrong.sentence)
    home = folder / "flwr"
    make_private_folder(home)
    config = connection_toml(machine.control, (folder / CERTIFICATE).absolute())
    write_text(home / "config.toml", config)
    keep_token(home, machine.control, (folder / "token").read_text(encoding="utf-8").strip())
    return home


def _log(run_id: str, variables: Mapping[str, str]) -> str:
    """The log of a run, or the sentence that there is none."""
    try:
        log = subprocess.run(
            [tool("flwr"), "log", run_id, CONNECTION, "--show"],
            env=dict(variables),
            capture_output=True,
            text=True,
            timeout=LOG_S,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired:
        return f"the server sends no log within {LOG_S:.0f} s"
    return str(legible(log))


def last_news(log: str) -> str:
    """The last round in a run's log, or for how many clients its server waits since then, and until when."""
    news = [found[0] for found in NEWS.finditer(log)]
    return news[-1] if news else "no round is finished yet"


def last_left_out(log: str) -> dict[str, str]:
    """Client's name -> the last round in which the server did not use its data or its update, and why."""
    return {f"client-{client}": f"round {number}: {reason}" for number, client, reason in LEFT_OUT.findall(log)}
