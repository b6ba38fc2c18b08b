"""Start of a machine: its SuperLink or SuperNode runs in this process, and prints in plain lines what happens."""

import logging
import os
import re
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from clients.state import STATE_FOLDER, StateStore, read_schema_file
from fedsel_app.config import ConfigError, DataConfig, RunConfig, Value
from fedsel_app.config.data import OwnDataConfig
from fedsel_app.data.columns import UnnamedLabelError
from fedsel_app.data.dataset import load
from fedsel_app.messages.reported_values import one_line
from fedsel_app.records.reading import legible
from fedsel_app.wiring.named_files import refuse_missing
from simulation.engines.this_process import uncollected_imports
from simulation.operations.deployment.flower_cli import DeploymentError, environment, node_config_text
from simulation.operations.deployment.leaks import leaks
from simulation.operations.guard.app_signature import TRUSTED, refuse_no_signer
from simulation.operations.guard.transport import HERE, free_ports, superlink_arguments, supernode_arguments
from simulation.operations.machines.checks import CERTIFICATE, check_folder, obstacle, other_release, refusal
from simulation.operations.machines.folders import LOG, client_numbers
from simulation.operations.machines.keys import days_left
from simulation.operations.machines.machine import HERE_RELEASE, Machine, read_machine, with_settings, write_machine
from simulation.operations.machines.private_files import OTHERS, held_folder

HOME, STATE = "flwr", "state"
"""In a machine's folder: FLWR_HOME, and a client's residuals."""
TRY_AGAIN_S = 5.0
SOON_DAYS = 30
UVICORN_HOOK = "configure_logging"
HERE_AGAIN, LOST, REFUSED = "SuperNode ID|Connection successful", "Connection attempt failed", "<_InactiveRpcError"
"""Flower's lines when a SuperNode finds the SuperLink, loses it, and is refused: regular expressions of their start."""
OVER = r"\[.*\]\[ApiError:(1008\]|2007\].*Run is finished)"
"""Lines of a SuperLink about calls that belong to a stopped run."""
SECOND = r"\[.*\]\[ApiError:2004\]"
"""The line of a SuperLink that refuses a second SuperNode with the key of a connected one. It shows the key."""


def read_startable(folder: Path, settings: Mapping[str, Value], *, unsigned_apps: bool) -> Machine:
    """Read the machine in `folder`, and add a client's own `settings`, which its folder keeps.

    Raises ConfigError if the folder is neither a server's nor a client's, or is damaged, if a client cannot have one of
    the settings of its own or names a module that this machine does not have, or if a client trusts no signer and
    `unsigned_apps` does not allow that.
    """
    machine = with_settings(read_machine(folder, "server", "client"), settings)
    check_folder(folder, machine)
    log = folder / LOG
    if log.is_symlink() or (log.exists() and not log.is_file()):
        raise ConfigError(f"Remove {log}: {machine.name} writes there, and it is a symlink or no file.")
    if unsigned_apps and machine.role != "client":
        raise ConfigError(f"Leave out --unsigned-apps: {machine.name} is no client.")
    if machine.role == "client" and not unsigned_apps:
        refuse_no_signer(folder / TRUSTED)
    refuse_missing(machine.settings)
    if settings:
        write_machine(folder, machine)
    return machine


def run_machine(folder: Path, settings: Mapping[str, Value], *, unsigned_apps: bool = False) -> None:
    """Run the server or client of this folder until a signal ends it: see `read_startable`.

    Raises ConfigError as `read_startable` does, or if the client's data cannot be read (its settings are not kept
    then); DeploymentError if the machine cannot run or connect, and trying again would not help.
    """
    data = describe_data(folder, with_settings(read_machine(folder, "server", "client"), settings))
    machine = read_startable(folder, settings, unsigned_apps=unsigned_apps)
    close(folder)
    with _ending(), _alone(folder / HOME):
        os.environ.update(environment(folder / HOME))
        os.chdir(folder)
        for number in (signal.SIGINT, signal.SIGTERM):
            # Flower and uvicorn install their own handlers, which call this one at the end.
            signal.signal(number, lambda *_: sys.exit(0))
        if machine.role == "server":
            _serve(folder, machine)
        else:
            if data:
                say(f"Data: {data.removesuffix('.')}.")
            _take_part(folder, machine, None if unsigned_apps else folder / TRUSTED)


def close(folder: Path) -> None:
    """Close a machine's folder to all other users, and let this process write files for its owner alone.

    The log and the records have values of the data.
    """
    os.umask(OTHERS)
    for path in (folder, *folder.glob(f"{LOG}*")):
        if (mode := stat.S_IMODE(path.stat().st_mode)) & OTHERS:
            path.chmod(mode & ~OTHERS)
            say(f"{path} was open to other users of this machine ({mode:o}), and is now closed to them.")


def describe_data(folder: Path, machine: Machine) -> str:
    """Description of the data that a client's own settings name; empty if the kind of its data comes with a run.

    Raises ConfigError if the data cannot be read, or do not fit what the server stated of them in the last run.
    """
    settings = {key: value for key, value in machine.settings.items() if key in DataConfig.defaults()}
    if "data" not in settings or ":" in str(settings["data"]):
        return ""
    data = DataConfig.from_values(settings)
    if machine.settings.get("partition", "own") != "own":
        return _described(data)
    states = StateStore(Path(str(machine.settings.get("state-dir", folder / STATE))) / STATE_FOLDER)
    stated = states.last_schema(machine.client)
    try:
        schema = "" if stated is None else read_schema_file(stated)
        return _described(OwnDataConfig.of(data, schema))
    except ConfigError as error:
        if stated is None and isinstance(error, UnnamedLabelError):
            return f"the columns {one_line(', '.join(error.columns))}, of which the server names that of the labels"
        if stated is None:
            raise
        raise ConfigError(
            f"{error} If the schema has changed since the last run, remove the files {stated.name} in {states.folder}."
        ) from error


def _described(data: DataConfig) -> str:
    dataset = load(data, RunConfig.seed)
    return ". ".join([dataset.description, *(leaks(dataset) if dataset.table else [])])


@contextmanager
def _ending() -> Iterator[None]:
    """End the process at once after a DeploymentError if threads of Flower would keep it alive."""
    try:
        yield
    except DeploymentError as error:
        if all(thread.daemon or thread is threading.main_thread() for thread in threading.enumerate()):
            raise
        print(f"fedsel: {legible(str(error))}", file=sys.stderr, flush=True)
        os._exit(1)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Lock FLWR_HOME `home`, and put temporary files there. Remove those of a process that was killed."""
    with held_folder(home, f"Another `fedsel start` is running in {home.parent}. End it first.") as temporary:
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
        yield


def say(sentence: str) -> None:
    """Print a sentence with the time to the terminal, even while `sys.stdout` is the log file."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {legible(sentence)}", file=sys.__stdout__, flush=True)


def plain_log(file: Path, sentences: Mapping[str, str]) -> None:
    """Send Flower's log and what it prints to `file`, and print only what the user must know.

    That is each warning and error, and for each line whose start matches a key of `sentences`, a regular expression,
    the sentence of that key; nothing if the sentence is empty. A sentence is not printed twice in a row.
    """
    from uvicorn import Config

    flower, written = logging.getLogger("flwr"), logging.FileHandler(file)
    written.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    flower.handlers = [written, _Plainly(sentences)]
    served = logging.getLogger("uvicorn")
    served.handlers = [written, _Plainly({})]
    served.propagate = False
    served.setLevel(logging.WARNING)
    # uvicorn, which serves Flower's APIs, would configure its logs again when it starts.
    setattr(Config, UVICORN_HOOK, lambda _: None)
    sys.stdout = file.open("a", buffering=1, encoding="utf-8")


class _Plainly(logging.Handler):
    """Handler that prints what the user must know."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        super().__init__()
        self._sentences = sentences
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the sentence or the warning in a record."""
        message = record.getMessage().strip()
        plain = next((words for pattern, words in self._sentences.items() if re.match(pattern, message)), None)
        # One line is enough; of a traceback it is the last line. The log file has the other lines.
        line = message.splitlines()[-1 if message.startswith("Traceback") else 0] if message else ""
        sentence = (line if record.levelno >= logging.WARNING else "") if plain is None else plain
        if sentence and sentence != self._last:
            self._last = sentence
            say(sentence)


def _serve(folder: Path, machine: Machine) -> None:
    if (wrong := other_release(machine)) is not None:
        raise DeploymentError(wrong.sentence)
    at = machine.endpoints(free_ports(1)[0])
    sys.argv = ["fedsel start", *superlink_arguments(folder), *at.arguments]
    with uncollected_imports():
        from simulation.operations.guard.superlink import run_superlink
    named = ", ".join(f"client-{number}" for number in client_numbers(folder)) or "none yet"
    say(f"Server {machine.server}, Flower {HERE_RELEASE}. Port {machine.port} is for clients: {named}.")
    if (left := days_left((folder / CERTIFICATE).read_bytes())) < SOON_DAYS:
        ends = f"ends in {left} days" if left >= 0 else "is no longer valid, so no client connects"
        say(f"Warning: the server's certificate {ends}. `fedsel provision --renew` makes the next one.")
    say(f"Port {machine.control_port} is for `fedsel submit`. The records of runs are written to {folder / 'runs'}.")
    plain_log(folder / LOG, {SECOND: "A client is refused: another client with the same key is connected.", OVER: ""})
    run_superlink(folder, say)


def _take_part(folder: Path, machine: Machine, trusted: Path | None) -> None:
    """Run the client, which imports only the apps of the `trusted` signers; None: all apps."""
    say(f"Client {machine.name}, Flower {HERE_RELEASE}. The server is {machine.fleet}.")
    if trusted is None:
        say("Warning: --unsigned-apps lets everybody who may submit runs execute code on this machine.")
    _wait_for_server(machine, folder / CERTIFICATE)
    settings = {"state-dir": str(folder / STATE), "identity-dir": str(folder), **machine.settings}
    node_config = node_config_text(machine.client, machine.clients, settings)
    sys.argv = ["fedsel start", *supernode_arguments(machine.fleet, node_config, folder, trusted), "--host", HERE]
    with uncollected_imports():
        from simulation.operations.guard import supernode_process as supernode
    connected, lost = f"Connected to {machine.fleet} as {machine.name}.", f"{machine.fleet} does not answer."
    plain_log(folder / LOG, {HERE_AGAIN: connected, LOST: f"{lost} Trying again.", REFUSED: ""})
    said: list[str] = []

    def refused() -> None:
        if not said:
            said.append(refusal(machine))
            say(f"{said[0]} Trying again every {supernode.RETRY_S:.0f} s.")

    try:
        supernode.main(refused)
    except RuntimeError as error:
        raise DeploymentError(refusal(machine)) from error


def _wait_for_server(machine: Machine, certificate: Path) -> None:
    """Wait until the server answers and is trusted. Print each obstacle once."""
    last = ""
    while (wrong := obstacle(machine, machine.port, certificate)) is not None:
        if not wrong.passing:
            raise DeploymentError(wrong.sentence)
        if wrong.sentence != last:
            say(f"{wrong.sentence} Trying again every {TRY_AGAIN_S:.0f} s.")
            last = wrong.sentence
        time.sleep(TRY_AGAIN_S)
