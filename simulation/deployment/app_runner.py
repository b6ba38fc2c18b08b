"""App runner: the thread of a SuperNode that has its messages answered by one app process, which stays.

Flower starts a process for each message, which imports the app anew: ten seconds of processor time. The app process is
replaced where another run begins, where it has ended, where it sends no heartbeats for a minute (it is frozen), and
where it takes longer for a message than the reply timeout (it hangs); the message that it had then fails with
"ClientApp stopped responding.", as with Flower's own. After `IDLE_S` without a message it is ended, to free its memory.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path

from fedsel_app.config import ReplyConfig
from fedsel_app.network.reply_timeout import ReplyTimeout
from simulation.flower_internals import app_process
from simulation.flower_internals.supernode import NodeTask, NodeTasks

APP_PROCESS = Path(app_process.__file__)
LAST_CALL = "PushTaskOutput"
LOOK_S = 1.0
"""Seconds between two looks at whether an app process still sends heartbeats, and is still in time."""
START_S, IDLE_S = 300.0, 600.0
"""Seconds that an app process may take to start, and in any case to its first answer; and without a message."""
SILENT = "it sends no heartbeats"


class AppProcessError(RuntimeError):
    """An app process that does not start, ends, sends no heartbeats or is late; the message is a part of a sentence."""


class AppProcess:
    """App process of one run, and the pipe to it.

    Attributes
    ----------
    ready : True once it has answered a message
    """

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.ready = False
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
    """App runner: `arrived` has what waits in `tasks` answered, in a thread of its own.

    Parameters
    ----------
    tasks
        The SuperNode's tasks: one for each message that it has received.
    on_answer
        Called after each message, when its reply (or its failure) is stored.
    """

    def __init__(self, tasks: NodeTasks, on_answer: Callable[[], None]) -> None:
        self._tasks = tasks
        self._on_answer = on_answer
        self._app: AppProcess | None = None
        self._timeouts: tuple[int, ReplyTimeout] | None = None
        """Run id, and the timeouts of that run."""
        self._arrived = threading.Event()
        threading.Thread(target=self._run, name="app-runner", daemon=True).start()

    def arrived(self) -> None:
        """Take notice of a message that has been received whole."""
        self._arrived.set()

    def _run(self) -> None:
        while True:
            if not self._arrived.wait(IDLE_S):
                self._end_app()
            self._arrived.clear()
            for run_id, task_id in self._tasks.pending():
                try:
                    self._answer(run_id, task_id)
                except Exception:  # noqa: BLE001 - the next message must find this thread
                    traceback.print_exc()
                self._on_answer()

    def _answer(self, run_id: int, task_id: int) -> None:
        """Have one message answered; it fails if the app process ends, is frozen, hangs or does not start."""
        task: NodeTask | None = None
        try:
            app = self._app_of(run_id)
            task = self._tasks.claim(task_id)
            self._serve(app, task)
        except (OSError, AppProcessError) as error:
            print(f"The app process is replaced, as {error}; its message has failed.", flush=True)
            self._end_app()
            (task or self._tasks.claim(task_id)).fail()

    def _serve(self, app: AppProcess, task: NodeTask) -> None:
        """Answer the app process's calls until its last one; it is killed if it falls silent or is late."""
        timeouts, began_s = self._timeouts_of(app.run_id, task), time.monotonic()
        last_call = threading.Event()
        reasons: list[str] = []

        def watch() -> None:
            while not last_call.wait(LOOK_S):
                limit_s = max(timeouts.longest_wait_s(task.kind), 0.0 if app.ready else START_S)
                late = time.monotonic() - began_s > limit_s
                if late or not task.alive():
                    if last_call.is_set():
                        return
                    reasons.append(f"it has not answered within {limit_s:.0f} s" if late else SILENT)
                    app.kill()
                    return

        threading.Thread(target=watch, daemon=True).start()
        name = ""
        try:
            app.pipe.send_bytes(b"")
            while name != LAST_CALL:
                called, _, request = app.pipe.recv_bytes().partition(b"\0")
                name = called.decode()
                if name == LAST_CALL:
                    last_call.set()
                app.pipe.send_bytes(task.call(name, request))
        except (EOFError, OSError) as error:
            raise AppProcessError(reasons[0] if reasons else "it has ended") from error
        finally:
            last_call.set()
        app.ready = True
        timeouts.learn(task.kind, time.monotonic() - began_s)

    def _timeouts_of(self, run_id: int, task: NodeTask) -> ReplyTimeout:
        if self._timeouts is None or self._timeouts[0] != run_id:
            self._timeouts = run_id, ReplyTimeout(ReplyConfig.from_values(task.run_config).reply_timeout_s)
        return self._timeouts[1]

    def _app_of(self, run_id: int) -> AppProcess:
        if self._app is not None and (self._app.run_id != run_id or self._app.ended):
            self._end_app()
        if self._app is None:
            self._app = AppProcess(run_id)
            if not self._app.pipe.poll(START_S):
                raise AppProcessError(f"it did not start within {START_S:g} s")
            try:
                self._app.pipe.recv_bytes()
            except EOFError as error:
                raise AppProcessError("it has ended") from error
        return self._app

    def _end_app(self) -> None:
        if self._app is not None:
            self._app.end()
            self._app = None
