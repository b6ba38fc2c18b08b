"""Starter: one process that starts the other processes of a command, and ends each of them with its whole family.

Any end of the command, even SIGKILL, closes the starter's stdin: it then kills all families, and ends.
``python -P -m simulation.engines.starter [PREPARATION]`` starts it. It reads requests, one JSON object a line.

A starter with a PREPARATION is warm. PREPARATION is a module: the starter imports it, and its `prepare` loads data on
request. Each process is a fork of the starter, and ``python -P -m MODULE`` runs in that fork: it shares everything that
the starter has imported and loaded, and starts in milliseconds. No thread may be running in a warm starter.

The forkserver of `multiprocessing` does not kill families, waits forever if it is frozen, and imports the user's main
script again.
"""

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self, cast

from simulation.engines import processes

POLL_S = 0.02
ANSWER_S = 60.0
"""Seconds that a starter has to start a process."""
PR_SET_PDEATHSIG = 1
KILLED = 128 + signal.SIGKILL
MODULE = [sys.executable, "-P", "-m"]
"""First words of a command that a warm starter runs in its fork."""


class Starter:
    """Starter of this process. It ends with the block, with `close`, or with this process.

    Attributes
    ----------
    running : False once the starter has ended
    """

    def __init__(self, preparation: str = "") -> None:
        self.running = True
        self._codes: dict[int, int] = {}
        self._replies: list[int] = []
        self._unread = b""
        self._process = subprocess.Popen(
            [*MODULE, "simulation.engines.starter", *filter(None, [preparation])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Evaluations may have more threads than there are cores for each run: they sleep instead of spinning.
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
            start_new_session=True,
        )
        self._requests, self._sent = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def prepare(self, timeout_s: float, **values: Any) -> None:
        """Let the module PREPARATION prepare what processes with these `values` share.

        Raises TimeoutError if this takes more than `timeout_s` seconds, and then kills the starter; ConnectionError if
        a signal has ended the starter; OSError if an error has ended it.
        """
        self._request({"prepare": values}, timeout_s)

    def start(
        self, name: str, mark: str, command: Sequence[str], log: Path, folder: Path, environment: Mapping[str, str]
    ) -> processes.Child:
        """Start `command` in `folder`, with its output in `log`. `mark` must be a text that no other family has.

        The family ends with its first process, and with the starter. Raises what `prepare` raises; the starter has
        `ANSWER_S` to answer.
        """
        log.write_bytes(b"")
        request = {
            "command": list(command),
            "log": str(log),
            "folder": str(folder),
            "environment": {**environment, processes.MARK: mark},
        }
        pid = self._request(request, ANSWER_S)
        return processes.Child(name, pid, command, log, mark, partial(self._poll, pid))

    def close(self) -> None:
        """Kill the starter and the processes that it has started."""
        self._process.kill()
        self._process.communicate()
        self.running = False

    def _poll(self, pid: int) -> int | None:
        self._receive(0.0)
        return self._codes.get(pid, None if self.running else KILLED)

    def _request(self, request: Mapping[str, Any], timeout_s: float) -> int:
        deadline_s = time.monotonic() + timeout_s
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        while self.running and not self._replies:
            self._receive(POLL_S)
            if time.monotonic() > deadline_s:
                self.close()
                raise TimeoutError(f"the process that starts all others has not answered within {timeout_s:g} s")
        if not self._replies:
            code = self._process.wait()
            if code < 0:
                raise ConnectionError(f"the process that starts all others was ended by {signal.Signals(-code).name}")
            raise OSError(
                f"The process that starts all others ended with exit code {code}. What was done is kept: repeat the "
                "command to continue."
            )
        return self._replies.pop()

    def _receive(self, timeout_s: float) -> None:
        """Receive what the starter sends, after waiting at most `timeout_s` seconds for it."""
        if not self.running or not select.select([self._sent], [], [], timeout_s)[0]:
            return
        sent = os.read(self._sent.fileno(), 1 << 16)
        self.running = bool(sent)
        *lines, self._unread = (self._unread + sent).split(b"\n")
        for line in lines:
            match json.loads(line):
                case {"ended": pid, "code": code}:
                    self._codes[pid] = code
                case {"done": number}:
                    self._codes.pop(number, None)  # of an earlier process with the same id
                    self._replies.append(number)


def serve(preparation: str) -> None:
    """Carry out requests until stdin is closed, then kill the families of all processes."""
    prepare = import_module(preparation).prepare if preparation else None
    gc.freeze()
    marks: dict[int, str] = {}
    try:
        while True:
            if select.select([sys.stdin], [], [], POLL_S)[0]:
                if not (line := sys.stdin.readline()):
                    return
                request, number = json.loads(line), 0
                if "command" in request:
                    number = fork(request, warm=prepare is not None)
                    marks[number] = request["environment"][processes.MARK]
                elif prepare is not None:
                    prepare(**request["prepare"])
                print(json.dumps({"done": number}), flush=True)
            for pid in list(marks):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    processes.kill_families({pid: marks.pop(pid)})
                    code = os.waitstatus_to_exitcode(status)
                    print(json.dumps({"ended": pid, "code": 128 - code if code < 0 else code}), flush=True)
    finally:
        processes.kill_families(marks)


def fork(request: Mapping[str, Any], *, warm: bool) -> int:
    """Start the command of the request in a session of its own. Returns its process id."""
    starter, command = os.getpid(), request["command"]
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != starter:
            os._exit(KILLED)
        log = os.open(request["log"], os.O_WRONLY)
        for descriptor, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, stream)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        if not warm or command[: len(MODULE)] != MODULE:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvp(command[0], command)
        code = run_module(*command[len(MODULE) :])
    except BaseException:  # noqa: BLE001 - as `python` ends
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_module(module: str, *arguments: str) -> int:
    """Run a module with these arguments, as ``python -m`` does. Returns its exit code."""
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1] if len(sys.argv) > 1 else "")
