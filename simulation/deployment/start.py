"""Start of a machine: its SuperLink or SuperNode runs in this process, and says in plain lines what happens."""

import logging
import logging.handlers
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

from fedsel_app.config import Value
from fedsel_app.imports import uncollected_imports
from fedsel_app.records.own_folder import make_own_folder, temporary_folder, working_in
from simulation.deployment.command_lines import connection_toml, superlink_command, supernode_command
from simulation.deployment.connection import client_obstacle, other_release
from simulation.deployment.flower_cli import DeploymentError, environment
from simulation.deployment.ports import free_ports
from simulation.experiments.node_configuration import node_config_text
from simulation.federation.folders import LOG, client_numbers
from simulation.federation.machine import HERE_RELEASE, Machine, address, read_machine, with_settings, write_machine
from simulation.flower_internals.app_signature import TRUSTED
from simulation.flower_internals.transport import ANYWHERE, HERE

HOME, STATE, DATABASE = "flwr", "state", "superlink.db"
"""FLWR_HOME, a client's residuals, and the server's nodes, within a machine's folder."""
TRY_AGAIN_S = 5.0
LOG_BYTES, LOGS = 10_000_000, 3
UVICORN_HOOK = "configure_logging"
LOST, BACK = "Connection attempt failed", "Connection successful"
"""Beginnings of Flower's lines when a SuperNode has lost the SuperLink, and has found it again."""


def start(folder: Path, settings: Mapping[str, Value]) -> None:
    """Run the server or client whose folder this is until it is ended; a client keeps the `settings` in its folder.

    Raises
    ------
    ConfigError
        If the folder is no server's or client's, or a setting is not a single client's.
    DeploymentError
        If something is in the way that does not change by itself.
    """
    machine = with_settings(read_machine(folder, "server", "client"), settings)
    if settings:
        write_machine(folder, machine)
    with _alone(folder / HOME):
        os.environ.update(environment(folder / HOME) | {"GRPC_VERBOSITY": "ERROR"})
        os.chdir(folder)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
        if machine.role == "server":
            _serve(folder, machine)
        else:
            _take_part(folder, machine)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Work alone with FLWR_HOME `home`, and with temporary files there, without those that a kill has left."""
    make_own_folder(home)
    with ExitStack() as held:
        try:
            held.enter_context(working_in(home))
        except BlockingIOError as error:
            raise DeploymentError(f"Another `fedsel start` is at work in {home.parent}; end that first.") from error
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary_folder(home))
        yield


def _end(number: int, frame: object) -> None:
    """End with exit code 0. Flower and uvicorn put their handlers before this one, and call it at the end."""
    sys.exit(0)


def say(sentence: str) -> None:
    """Print a sentence with the time."""
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {sentence}", flush=True)


def plain_log(file: Path, lines: Mapping[str, str]) -> None:
    """Send Flower's log to `file`; say its warnings and errors, and a sentence for a line with a beginning in `lines`.

    What was said last is not said again. uvicorn, which serves Flower's APIs, would configure its logs at its start.
    """
    from uvicorn import Config

    flower, written = logging.getLogger("flwr"), logging.handlers.RotatingFileHandler(file, "a", LOG_BYTES, LOGS)
    written.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    flower.handlers[:] = [written, _Plainly(lines)]
    served = logging.getLogger("uvicorn")
    served.handlers[:], served.propagate = [written, _Plainly({})], False
    served.setLevel(logging.WARNING)
    setattr(Config, UVICORN_HOOK, lambda _: None)


class _Plainly(logging.Handler):
    """Handler that says what somebody must know."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        super().__init__()
        self._lines, self._last = lines, ""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record."""
        message = record.getMessage().strip()
        known = next((said for begin, said in self._lines.items() if message.startswith(begin)), None)
        # One line says enough, of a traceback the last: log.txt has the others.
        line = message.splitlines()[-1 if message.startswith("Traceback") else 0] if message else ""
        sentence = known or (line if record.levelno >= logging.WARNING else "")
        if sentence and sentence != self._last:
            self._last = sentence
            say(sentence)


def _serve(folder: Path, machine: Machine) -> None:
    if (wrong := other_release(machine)) is not None:
        raise DeploymentError(wrong.sentence)
    at = machine.endpoints(free_ports(1)[0])
    for port in sorted({machine.port, machine.control_port}):
        _refuse_taken(port)
    control = address(HERE, machine.control_port)
    config = connection_toml(control, folder / "ca.crt")
    (folder / HOME / "config.toml").write_text(config, encoding="utf-8")
    sys.argv = ["fedsel start", *superlink_command(folder, folder / DATABASE)[5:], *at.arguments]
    with uncollected_imports():
        from simulation.flower_internals.superlink import run_superlink
    plain_log(folder / LOG, {})
    named = ", ".join(f"client-{number}" for number in client_numbers(folder)) or "nobody yet"
    say(f"Server {machine.server}, Flower {HERE_RELEASE}. Clients connect to port {machine.port}: {named}.")
    say(f"Runs are submitted to port {machine.control_port}; their records come to {folder / 'runs'}.")
    run_superlink(folder, say)


def _take_part(folder: Path, machine: Machine) -> None:
    authority, key, trusted = folder / "ca.crt", folder / "key", folder / TRUSTED
    say(f"{machine.name} of {machine.clients}, Flower {HERE_RELEASE}. The server is {machine.fleet}.")
    _wait_for_server(machine, authority, key)
    own = {"state-dir": str(folder / STATE), **machine.settings}
    node_config = node_config_text(machine.client, machine.clients, own)
    signed = trusted if trusted.exists() else None
    command = supernode_command(machine.fleet, node_config, folder, signed)
    sys.argv = ["fedsel start", *command[3:], "--host", HERE]
    with uncollected_imports():
        from simulation.deployment import supernode
    here = f"Connected to {machine.fleet} as {machine.name}."
    plain_log(folder / LOG, {"SuperNode ID": here, LOST: f"{machine.fleet} does not answer; trying again.", BACK: here})
    try:
        supernode.main()
    except RuntimeError as error:
        found = client_obstacle(machine, authority, key)
        said = (
            found.sentence if found else f"{machine.fleet} refuses {machine.name} ({error}); {folder / LOG} has more."
        )
        raise DeploymentError(said) from error
    except SystemExit:
        # Flower ends quietly where the server refuses a client amid a run.
        found = client_obstacle(machine, authority, key)
        if found is not None and found.kind == "key":
            raise DeploymentError(found.sentence) from None
        raise


def _wait_for_server(machine: Machine, authority: Path, key: Path) -> None:
    """Return when the server answers, is trusted and knows this client; say what is in the way, each thing once."""
    said = ""
    while (found := client_obstacle(machine, authority, key)) is not None:
        if not found.passing:
            raise DeploymentError(found.sentence)
        if found.kind != said:
            say(f"{found.sentence} Trying again every {TRY_AGAIN_S:.0f} s.")
            said = found.kind
        time.sleep(TRY_AGAIN_S)


def _refuse_taken(port: int) -> None:
    try:
        socket.create_server((ANYWHERE, port)).close()
    except OSError as error:
        raise DeploymentError(
            f"Port {port} of this machine cannot be opened: {error.strerror}. End the program that has it, or "
            "provision with another --port."
        ) from error
