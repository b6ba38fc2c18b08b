"""Flower's command line `flwr`: submits runs and reads how they ended.

``flwr run --stream`` exits with 0 even if the ServerApp raised an exception, so the status is read afterwards.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedsel_app.config import Value
from fedsel_app.config.plugins import CODE_FOLDER
from simulation.operations.guard.transport import CONNECTION

COMMAND_TIMEOUT_S = 300.0
SILENCE_S, ANSWER_S = 60.0, 120.0
"""Seconds without a line of the log after which the SuperLink is asked about the run, and timeout of its answer."""
POLL_S = 1.0
UNAVAILABLE = "SuperLink is unavailable"
"""Words of `flwr` if no SuperLink answers at the address."""
LOG_IN = "flwr login"
"""Words of `flwr` if the SuperLink does not accept the token."""
REFUSED = "Invalid run configuration. "
"""Words of `flwr` before the sentence of a SuperLink that refuses a run: see `guard.superlink.check_files`."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that no proxy may come between."""


class DeploymentError(RuntimeError):
    """A Flower process or command failed; the message quotes its output."""


class NoAnswerError(DeploymentError):
    """The SuperLink did not answer a command of Flower."""


@dataclass(frozen=True)
class SubmittedRun:
    """Outcome of a submitted run, in Flower's words: `status` is "finished:completed" if it succeeded."""

    run_id: int
    status: str
    details: str

    @property
    def completed(self) -> bool:
        """Whether the run finished without an error."""
        return self.status == "finished:completed"

    @property
    def sentence(self) -> str:
        """The outcome of a run that failed or was stopped, as a sentence."""
        details = "" if self.details == "N/A" else f" {self.details}"
        return f"The run {self.status.partition(':')[2] or self.status}.{details}"


def submit_to_flower(
    app: Path,
    run_config: Mapping[str, Value],
    flwr_home: Path,
    on_line: Callable[[str], None],
    on_start: Callable[[int], None] | None = None,
) -> SubmittedRun:
    """Submit `app` through ``flwr run`` and wait for its end. An interrupt stops the run, unless `on_start` is given.

    Raises DeploymentError if a command of Flower fails, or the SuperLink does not answer.

    Parameters
    ----------
    app : folder with the app's pyproject.toml
    run_config : settings that override the app's. Flower refuses keys that are not in the app's pyproject.toml.
    flwr_home : FLWR_HOME of the command, whose config.toml has the SuperLink's `CONNECTION`
    on_line : called with each line of the run's log
    on_start : called with the run's id. The run then belongs to a server that goes on without this process.
    """
    variables = environment(flwr_home)
    with tempfile.TemporaryDirectory(dir=flwr_home) as folder:
        overrides = Path(folder) / "run-config.toml"
        overrides.write_text(tomli_w.dumps(run_config), encoding="utf-8")
        run_id = int(
            flwr(["run", str(app.absolute()), CONNECTION, "--run-config", str(overrides)], variables)["run-id"]
        )
    if on_start is not None:
        on_start(run_id)
    try:
        _show_log(run_id, variables, on_line)
        while (ended := _result(run_id, variables)) is None:
            time.sleep(POLL_S)
        return ended
    except NoAnswerError as error:
        gone = f"The SuperLink has ended, is frozen, or cannot be reached: {error}"
        raise DeploymentError(f"{gone} The rounds so far are kept. Go on with --resume.") from error
    except BaseException:
        if on_start is None:
            with suppress(DeploymentError):
                flwr(["stop", str(run_id), CONNECTION], variables, ANSWER_S)
        raise


def _result(run_id: int, variables: Mapping[str, str]) -> SubmittedRun | None:
    """Outcome of a run; None as long as it runs."""
    run = flwr(["list", CONNECTION, "--run-id", str(run_id)], variables, ANSWER_S)["runs"][0]
    ended = run["status"].startswith("finished")
    return SubmittedRun(run_id, run["status"], run["status-details"]) if ended else None


def _show_log(run_id: int, variables: Mapping[str, str], on_line: Callable[[str], None]) -> None:
    """Pass each line of a run's log to `on_line`, until the log ends."""
    with subprocess.Popen(
        [tool("flwr"), "log", str(run_id), CONNECTION, "--stream"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=variables,
        text=True,
        errors="replace",
    ) as log:
        try:
            show(log.stdout or (), on_line, lambda: _result(run_id, variables) is not None)
        finally:
            log.terminate()


def show(lines: Iterable[str], on_line: Callable[[str], None], over: Callable[[], bool]) -> None:
    """Pass each of `lines` to `on_line` at once, until their end, or until `over` after `SILENCE_S` without a line."""
    arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        with suppress(ValueError):  # the file is closed while this thread reads it
            for line in lines:
                arrived.put(line)
        arrived.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = arrived.get(timeout=SILENCE_S)
        except queue.Empty:
            if over():
                return
            continue
        if line is None:
            return
        on_line(line.rstrip("\n"))


def tool(name: str) -> str:
    """Path of a program of Flower, which is in the folder of this Python."""
    return str(Path(sys.executable).parent / name)


def environment(flwr_home: Path | None) -> dict[str, str]:
    """Environment of Flower's programs: no telemetry, no installation at run time, one thread for each process, and no
    proxy between the processes of this machine.
    """
    exempt = [os.environ[name] for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY") if os.environ.get(name)]
    variables = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        CODE_FOLDER: os.getcwd(),
        **dict.fromkeys(("no_grpc_proxy", "no_proxy", "NO_PROXY"), ",".join([*exempt, *LOOPBACK])),
    }
    return variables if flwr_home is None else {**variables, "FLWR_HOME": str(flwr_home)}


def flwr(
    arguments: Sequence[str], variables: Mapping[str, str], timeout_s: float = COMMAND_TIMEOUT_S
) -> dict[str, Any]:
    """Run a command of `flwr` and return its JSON answer.

    Raises NoAnswerError if the command takes more than `timeout_s` seconds, or the SuperLink does not answer it;
    DeploymentError if it fails.
    """
    command = [tool("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=variables,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"`flwr {arguments[0]}` took more than {timeout_s:g} s.") from error
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        answer = {}
    if not answer.get("success"):
        reason = answer.get("error-message") or (done.stderr + done.stdout).strip()
        if LOG_IN in reason:
            raise DeploymentError(
                "Copy the admin's file token again from where it was provisioned: the server does not accept the token."
            )
        failure, reason = NoAnswerError if UNAVAILABLE in reason else DeploymentError, " ".join(reason.split())
        raise failure(reason.partition(REFUSED)[2] or f"`flwr {arguments[0]}` failed: {reason}")
    return answer


def node_config_text(client: int, clients: int, settings: Mapping[str, Value]) -> str:
    """Node configuration of one of `clients` clients with its own `settings`, in the form of the command line."""
    identity = f"partition-id={client} num-partitions={clients}"
    return " ".join([identity, *(f"{key}={_literal(value)}" for key, value in settings.items())])


def _literal(value: Value) -> str:
    """A TOML value; text has no quote in it, which Flower's command line would take for its end."""
    if not isinstance(value, str):
        return json.dumps(value)
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    return '"' + json.dumps(value)[1:-1].replace('\\"', "\\u0022").replace("'", "\\u0027") + '"'
