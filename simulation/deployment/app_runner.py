"""App runner: a SuperNode has its messages answered by one app process, which stays.

Flower starts a process for each message, which imports the app anew: ten seconds of processor time. The app process is
replaced where another run begins, where it has ended, where it sends no heartbeats for a minute (it is frozen), and
where it takes longer for a message than the reply timeout (it hangs); the message that it had then fails with
"ClientApp stopped responding.", as with Flower's own.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

from fedsel_app.config import ReplyConfig
from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.flower_internals import app_process
from simulation.flower_internals.supernode import NodeMessage

APP_PROCESS = Path(app_process.__file__)
LOOK_S = 1.0
"""Seconds between two looks at whether an app process still sends heartbeats, and is still in time."""
START_S, SILENCE_S = 300.0, 60.0
"""Seconds that an app process may take to start, and in any case to its first answer; and without a heartbeat."""
SILENT = "it sends no heartbeats"


class AppProcessError(RuntimeError):
    """An app process that does not start, ends, sends no heartbeats or is late; the message is a part of a sentence."""


class AppProcess:
    """App process of one run, and the pipe to it.

    Attributes
    ----------
    ready : True once it has answered a message
    heard_s : monotonic time of its last frame
    """

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.ready = False
        self.heard_s = 0.0
        self.pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-P", str(APP_PROCESS), str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], process_group=0
            )

    @property
    def ended(self) -> bool:
        """True if the process is no more."""
        return self._process.poll() is not None

    def receive(self) -> bytes:
        """Wait for a frame that is no heartbeat. Raises EOFError or OSError if the process ends."""
        frame = b""
        while not frame:
            frame = self.pipe.recv_bytes()
            self.heard_s = time.monotonic()
        return frame

    def kill(self) -> None:
        """Kill the process and what it has forked, so that nobody holds the other end of the pipe."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """End the process, and wait for it."""
        self.pipe.close()
        self.kill()
        self._process.wait()


class AppRunner:
    """App runner: `answer` has a message answered, and `rest` ends the app process until the next one."""

    def __init__(self) -> None:
        self._app: AppProcess | None = None
        self._timeouts: tuple[int, ReplyTimeout] | None = None
        """Run id, and the timeouts of that run."""

    def answer(self, message: NodeMessage) -> None:
        """Have a message answered; it fails if the app process ends, is frozen, hangs or does not start."""
        try:
            self._serve(self._app_of(message.run_id), message)
        except Exception as error:  # noqa: BLE001 - every message has an answer
            if not isinstance(error, AppProcessError):
                traceback.print_exc()
            print(f"The app process is replaced, as {error}; its message has failed.", flush=True)
            self.rest()
            message.fail()

    def rest(self) -> None:
        """End the app process, if there is one."""
        if self._app is not None:
            self._app.end()
            self._app = None

    def _serve(self, app: AppProcess, message: NodeMessage) -> None:
        """Exchange a message for its answer; the process is killed if it falls silent or is late."""
        timeouts, began_s = self._timeouts_of(message), time.monotonic()
        limit_s = max(timeouts.longest_wait_s(message.kind), 0.0 if app.ready else START_S)
        app.heard_s = began_s
        over = threading.Event()
        reasons: list[str] = []

        def watch() -> None:
            while not over.wait(LOOK_S):
                now_s = time.monotonic()
                late = now_s - began_s > limit_s
                if late or now_s - app.heard_s > SILENCE_S:
                    reasons.append(f"it has not answered within {limit_s:.0f} s" if late else SILENT)
                    app.kill()
                    return

        threading.Thread(target=watch, daemon=True).start()
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
