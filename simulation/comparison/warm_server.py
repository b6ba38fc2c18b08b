"""Warm server: a process that imports a program and loads its data once, and forks a child for each run.

A child shares the code and the data that the server has loaded. It starts in milliseconds and ends with its run, so it
leaves nothing behind. ``python -m simulation.comparison.warm_server PROGRAM [PREPARATION]`` starts the server. It reads
requests from its stdin, one JSON object per line. Any end of its parent closes stdin: the server then kills all
children with their descendants, and ends.

PROGRAM is a module or a .py file, run as `python` would. PREPARATION is a module; it is imported first, and its
`prepare(values)` carries out the requests to prepare. The descendants of a child end with it. No thread may be running
when a child is forked.
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
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from fedsel_app.config import Value
from simulation import processes

POLL_S = 0.02
FORK_S = 60.0
"""Seconds that a server has to fork a child."""
PR_SET_PDEATHSIG = 1
KILLED = 128 + signal.SIGKILL


class ForkedProcess:
    """Child of a warm server, with the part of the interface of `subprocess.Popen` that `processes.Child` needs."""

    stdin = None

    def __init__(self, pid: int, server: "WarmServer") -> None:
        self.pid = pid
        self._server = server

    def poll(self) -> int | None:
        """Exit code, or 128 and the number of the signal that ended it; None while it runs."""
        self._server.receive(0.0)
        return self._server.codes.get(self.pid, None if self._server.running else KILLED)

    def wait(self) -> int:
        """Wait for its end. Returns the code, as `poll` does."""
        while (code := self.poll()) is None:
            self._server.receive(POLL_S)
        return code


class WarmServer:
    """Warm server of this process. It ends with `close` or with this process.

    Attributes
    ----------
    codes : exit code of each child that has ended, by process id
    running : False once the server has ended
    """

    def __init__(self, program: str, preparation: str = "") -> None:
        self.codes: dict[int, int] = {}
        self.running = True
        self._replies: list[int] = []
        self._unread = b""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "simulation.comparison.warm_server", program, *filter(None, [preparation])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Evaluations may have more threads than there are cores for each run: they sleep instead of spinning.
            env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
            start_new_session=True,
        )
        self._requests, self._sent = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)

    def prepare(self, values: Mapping[str, Value], timeout_s: float) -> None:
        """Let the server load the data that runs with the settings `values` share.

        Raises
        ------
        TimeoutError
            If this takes more than `timeout_s` seconds; the server is then killed.
        ConnectionError
            If a signal ends the server.
        OSError
            If an error in the server ends it.
        """
        self._request({"prepare": dict(values)}, timeout_s)

    def start(
        self, name: str, mark: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> processes.Child:
        """Run the program with `arguments` in a child; for `name`, `mark` and `log` see `processes.start`.

        Raises
        ------
        TimeoutError
            If the server does not answer within `FORK_S`; it is then killed.
        ConnectionError
            If a signal has ended it.
        OSError
            If an error in the server has ended it.
        """
        marked = {**environment, processes.MARK: mark}
        pid = self._request({"arguments": list(arguments), "log": str(log), "environment": marked}, FORK_S)
        return processes.Child(name, ForkedProcess(pid, self), log, mark)

    def close(self) -> None:
        """Kill the server and its running children."""
        self._process.kill()
        self._process.communicate()
        self.running = False

    def _request(self, request: Mapping[str, Any], timeout_s: float) -> int:
        deadline_s = time.monotonic() + timeout_s
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        while self.running and not self._replies:
            self.receive(POLL_S)
            if time.monotonic() > deadline_s:
                self.close()
                raise TimeoutError(f"the process that starts the runs has not answered within {timeout_s:g} s")
        if not self._replies:
            code = self._process.wait()
            if code < 0:
                raise ConnectionError(f"the process that starts the runs was ended by {signal.Signals(-code).name}")
            raise OSError(
                f"The process that starts the runs ended with exit code {code}. What was done is kept: "
                "start the comparison again."
            )
        return self._replies.pop()

    def receive(self, timeout_s: float) -> None:
        """Receive the server's messages, after waiting at most `timeout_s` seconds for one."""
        if not self.running or not select.select([self._sent], [], [], timeout_s)[0]:
            return
        sent = os.read(self._sent.fileno(), 1 << 16)
        self.running = bool(sent)
        *lines, self._unread = (self._unread + sent).split(b"\n")
        for line in lines:
            match json.loads(line):
                case {"ended": pid, "code": code}:
                    self.codes[pid] = code
                case {"done": number}:
                    self._replies.append(number)


def serve(program: str, preparation: str) -> None:
    """Carry out requests until stdin is closed, then kill the children with their descendants."""
    module = import_module(preparation) if preparation else None
    gc.freeze()
    marks: dict[int, str] = {}
    try:
        while True:
            if select.select([sys.stdin], [], [], POLL_S)[0]:
                if not (line := sys.stdin.readline()):
                    return
                request, number = json.loads(line), 0
                if "prepare" in request and module is not None:
                    module.prepare(request["prepare"])
                elif "arguments" in request:
                    number = fork(program, request)
                    marks[number] = request["environment"][processes.MARK]
                print(json.dumps({"done": number}), flush=True)
            for pid in list(marks):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    processes.kill_families({pid: marks[pid]})
                    del marks[pid]
                    code = os.waitstatus_to_exitcode(status)
                    print(json.dumps({"ended": pid, "code": 128 - code if code < 0 else code}), flush=True)
    finally:
        processes.kill_families(marks)


def fork(program: str, request: Mapping[str, Any]) -> int:
    """Fork a child that runs `program` with the values of the request, in its own session. Returns its process id."""
    server = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setsid()
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(KILLED)
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, stream)
        os.environ.update(request["environment"])
        sys.argv = [program, *request["arguments"]]
        code = run_program(program)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run_program(program: str) -> int:
    """Run a module or file with `sys.argv`, as `python` would. Returns its exit code."""
    run = runpy.run_path if program.endswith(".py") else runpy.run_module
    try:
        run(program, run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - as `python` ends
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "")
