"""Flower's command line `flwr`: submits runs and reports how they ended.

``flwr run --stream`` exits with 0 also when the ServerApp raised, so the status is read afterwards.
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

from fedsel_app.config import ConfigError, Value

COMMAND_TIMEOUT_S = 300.0
SILENCE_S, ANSWER_S = 60.0, 120.0
"""Seconds without a line of the log after which the SuperLink is asked for the run, and that it has for the answer."""
POLL_S = 1.0
UNAVAILABLE = "SuperLink is unavailable"
"""Words of a command that has found nobody at the SuperLink's address, or nobody who answers."""


class DeploymentError(RuntimeError):
    """A Flower process or command failed; the message quotes its output."""


class NoAnswerError(DeploymentError):
    """A command of Flower has had no answer from the SuperLink."""


@dataclass(frozen=True)
class RunResult:
    """Outcome of a submitted run, in Flower's words: `status` is "finished:completed" if it succeeded."""

    run_id: int
    status: str
    details: str

    @property
    def completed(self) -> bool:
        """True if the run finished without an error."""
        return self.status == "finished:completed"

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if self.completed:
            return "The run is finished."
        details = "" if self.details == "N/A" else f" {self.details}"
        return f"The run did not finish: {self.status.replace(':', ', ')}.{details}"


def submit(
    app: Path,
    superlink: str,
    run_config: Mapping[str, Value],
    flwr_home: Path | None,
    federation_config: str | None,
    on_line: Callable[[str], None],
) -> RunResult:
    """Submit `app` through ``flwr run``, hand each line of its log to `on_line`, and return its outcome.

    Parameters
    ----------
    app : Path
        Folder with the app's pyproject.toml.
    superlink : str
        Name of a connection in ``flwr_home/config.toml``.
    run_config : mapping
        Overrides; Flower refuses keys that the app's pyproject.toml does not have.
    flwr_home : Path or None
        FLWR_HOME of the command; None for the user's own (FLWR_HOME, or ~/.flwr).
    federation_config : str or None
        For simulating SuperLinks: "num-supernodes=20 client-resources-num-cpus=1".

    An interrupt stops the run.

    Raises
    ------
    DeploymentError
        If a command of Flower fails, or the SuperLink does not answer.
    """
    variables = environment(flwr_home)
    with tempfile.TemporaryDirectory(dir=flwr_home) as folder:
        overrides = Path(folder) / "run-config.toml"
        overrides.write_text(tomli_w.dumps(run_config), encoding="utf-8")
        options = ["--run-config", str(overrides)]
        if federation_config is not None:
            options += ["--federation-config", federation_config]
        run_id = int(flwr(["run", str(app.absolute()), superlink, *options], variables)["run-id"])

    def result() -> RunResult | None:
        run = flwr(["list", superlink, "--run-id", str(run_id)], variables, ANSWER_S)["runs"][0]
        ended = run["status"].startswith("finished")
        return RunResult(run_id, run["status"], run["status-details"]) if ended else None

    try:
        with subprocess.Popen(
            [tool("flwr"), "log", str(run_id), superlink, "--stream"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=variables,
            text=True,
            errors="replace",
        ) as log:
            try:
                show(log.stdout or (), on_line, lambda: result() is not None)
            finally:
                log.terminate()
        while (ended := result()) is None:
            time.sleep(POLL_S)
    except NoAnswerError as error:
        raise DeploymentError(
            f"The SuperLink has ended, is frozen, or cannot be reached: {error} The rounds so far are kept; go on with "
            "--resume."
        ) from error
    except BaseException:
        with suppress(DeploymentError):
            flwr(["stop", str(run_id), superlink], variables, ANSWER_S)
        raise
    return ended


def show(lines: Iterable[str], on_line: Callable[[str], None], over: Callable[[], bool]) -> None:
    """Hand `lines` to `on_line` as they come, to their end; `over` is asked after each `SILENCE_S` without one."""
    arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        with suppress(ValueError):  # the file is closed under this thread
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
    """Path of one of Flower's programs beside this Python. Raises ConfigError if it is not installed there."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise ConfigError(f"There is no {name} in {path.parent}. Install Flower there: `pip install -e .`.")
    return str(path)


def environment(flwr_home: Path | None) -> dict[str, str]:
    """Environment of one of Flower's programs: no telemetry, nothing installed at run time, one thread each."""
    variables = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return variables if flwr_home is None else {**variables, "FLWR_HOME": str(flwr_home)}


def flwr(
    arguments: Sequence[str], variables: Mapping[str, str], timeout_s: float = COMMAND_TIMEOUT_S
) -> dict[str, Any]:
    """Run one `flwr` command and return its JSON answer.

    Raises
    ------
    NoAnswerError
        If it does not answer within `timeout_s` seconds, or the SuperLink does not.
    DeploymentError
        If it fails.
    """
    command = [tool("flwr"), *arguments, "--format", "json"]
    # A local SuperLink that this starts keeps its directory, and Ray's workers look there for modules first.
    neutral = Path(variables.get("FLWR_HOME", Path.home() / ".flwr"))
    neutral.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=variables,
            cwd=neutral,
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
        failure = NoAnswerError if UNAVAILABLE in reason else DeploymentError
        raise failure(f"`flwr {arguments[0]}` failed: {' '.join(reason.split())}")
    return answer
