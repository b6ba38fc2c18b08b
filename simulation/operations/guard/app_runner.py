"""App runner: one lasting app process answers all messages of a SuperNode.

Flower starts a process for each message, and each imports the app again, which takes ten seconds of processor time.

The app process is replaced when another run begins and in four cases of failure: it has ended, it has sent no
heartbeat for a minute (it is frozen), it takes longer for a message than the reply timeout (it hangs), or the run is
over, so that nobody waits for its answer. The message that it was answering then fails with "ClientApp stopped
responding.", as in Flower.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from logging import WARNING
from multiprocessing import Pipe
from pathlib import Path

from flwr.common.logger import log

from fedsel_app.config import ReplyConfig
from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.operations.guard import app_process
from simulation.operations.guard.supernode import NodeMessage

APP_PROCESS = Path(app_process.__file__)
LOOK_S, ASK_S = 1.0, 10.0
"""Seconds between two checks of an app process for heartbeats and lateness, and between two questions for its run."""
START_S, SILENCE_S = 300.0, 60.0
"""Timeout in seconds of an app process's start and, at least, of its first answer; and of its heartbeats."""


class AppProcessError(RuntimeError):
    """An app process did not start, ended, was silent or was late. The message completes "... replaced because"."""


class AppProcess:
    """App process of one run, and the pipe to it.

    Attributes
    ----------
    ready : true once it has answered a message
    heard_s : monotonic time of its last frame, in seconds
    """

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.ready = False
        self.heard_s = 0.0
        self.pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-P", str(APP_PROCESS), str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sys.stdout, pass_fds=[theirs.fileno()], process_group=0
            )

    @property
    def ended(self) -> bool:
        """True if the process has ended."""
        return self._process.poll() is not None

    def receive(self) -> bytes:
        """Wait for a frame other than a heartbeat. Raises EOFError or OSError if the process ends."""
        frame = b""
        while not frame:
            frame = self.pipe.recv_bytes()
            self.heard_s = time.monotonic()
        return frame

    def kill(self) -> None:
        """Kill the process and its children, so that no process holds the other end of the pipe."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.pipe.close()
        self.kill()
        self._process.wait()


class AppRunner:
    """App runner of a SuperNode: `answer` answers a message; `rest` ends the app process until the next message."""

    def __init__(self) -> None:
        self._app: AppProcess | None = None
        self._timeouts: tuple[int, ReplyTimeout] | None = None
        """Id of the current run, and its reply timeouts."""

    def answer(self, message: NodeMessage) -> None:
        """Answer a message. The message fails if the app process does not start, ends, is frozen or hangs."""
        try:
            self._serve(self._app_of(message.run_id), message)
        except Exception as error:  # noqa: BLE001 - every message has an answer
            unexpected = None if isinstance(error, AppProcessError) else error
            log(WARNING, "The app process is replaced because %s. Its message has failed.", error, exc_info=unexpected)
            self.rest()
            message.fail()

    def rest(self) -> None:
        """End the app process if there is one."""
        if self._app is not None:
            self._app.end()
            self._app = None

    def _serve(self, app: AppProcess, message: NodeMessage) -> None:
        """Send a message and store its answer. Kill the app process if it falls silent or is late."""
        timeouts, began_s = self._timeouts_of(message), time.monotonic()
        limit_s = max(timeouts.longest_wait_s(message.kind), 0.0 if app.ready else START_S)
        app.heard_s = began_s
        over = threading.Event()
        reasons: list[str] = []

        def look() -> None:
            while not over.wait(LOOK_S):
                now_s = time.monotonic()
                late = now_s - began_s > limit_s
                if late or now_s - app.heard_s > SILENCE_S:
                    reasons.append(f"it has not answered within {limit_s:.0f} s" if late else "it sends no heartbeats")
                    app.kill()
                    return

        def ask() -> None:
            while not over.wait(ASK_S):
                if message.is_in_vain() and not over.is_set():
                    reasons.append("its run is over")
                    app.kill()
                    return

        for watcher in (look, ask):
            threading.Thread(target=watcher, daemon=True).start()
        try:
            for frame in message.frames():
                app.pipe.send_bytes(frame)
            message.store(app.receive)
        except (EOFError, OSError) as error:
            raise AppProcessError(reasons[0] if reasons else "it has ended") from error
        finally:
            over.set()
        app.ready = True
        timeouts.learn(message.kind, time.monotonic() - began_s)

    def _timeouts_of(self, message: NodeMessage) -> ReplyTimeout:
        if self._timeouts is None or self._timeouts[0] != message.run_id:
            first_s = ReplyConfig.from_values(message.run_config).reply_timeout_s
            self._timeouts = message.run_id, ReplyTimeout(first_s)
        return self._timeouts[1]

    def _app_of(self, run_id: int) -> AppProcess:
        if self._app is not None and (self._app.run_id != run_id or self._app.ended):
            self.rest()
        if self._app is None:
            self._app = AppProcess(run_id)
            if not self._app.pipe.poll(START_S):
                raise AppProcessError(f"it did not start within {START_S:g} s")
            try:
                self._app.receive()
            except EOFError as error:
                raise AppProcessError("it has ended") from error
        return self._app
