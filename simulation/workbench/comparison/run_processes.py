"""Run processes of a comparison: one process per run, several at a time, restarted if one is killed.

All runs are forks of one warm starter, which has imported everything and loaded the data sets.

The rounds that a run writes show whether its process is frozen or hangs (`RoundWatch`). A round may wait for a client
that no longer answers, so its limit is twice the reply timeout: twice `reply-timeout-s` for the first round, then
twenty times the slowest round so far. If the participation policy searches, rounds differ by more than that, so no
limit is below that of the first round.
"""

import fcntl
import json
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tomli_w
from rich.console import Console

from fedsel_app.config import ConfigError
from fedsel_app.config.plugins import CODE
from fedsel_app.config.run import score_title
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.records.fedsel_folder import discard_empty, make_private_folder
from simulation.engines import processes
from simulation.engines.choice import choose
from simulation.engines.starter import Starter
from simulation.engines.this_process import exit_on_signals, signals_deferred
from simulation.workbench.comparison.plan import (
    ComparisonPlan,
    PlannedRun,
    cores_each,
    gpu_count,
    visible_gpus,
    workers_each,
)
from simulation.workbench.comparison.watch import progress_of_run
from simulation.workbench.terminal import duration_text

ROUND = "round"
TIMEOUTS = 2.0
"""Reply timeouts in a round."""
FEDSEL = (sys.executable, "-P", "-m", "simulation.workbench.cli")
PREPARATION = "simulation.workbench.preparation"
POLL_S = 0.05
GRACE_S = 3.0
RESTARTS = 2
"""Maximum number of restarts of a run, from its checkpoint, after its process was killed or froze."""


class RoundWatch:
    """Watch on one process of a run that begins at `now_s` on the monotonic clock."""

    def __init__(self, run: PlannedRun, now_s: float) -> None:
        first_s = run.config.replies.reply_timeout_s
        self._timeouts = ReplyTimeout(first_s)
        self._least_s = first_s if run.config.participation.searches else 0.0
        self._file = run.folder / "rounds.jsonl"
        self._since_s = now_s
        self._bytes = self._written()

    def overdue_s(self, now_s: float) -> float:
        """Time limit in seconds of the next round, if the round has exceeded it; else 0."""
        before, self._bytes = self._bytes, self._written()
        if self._bytes > before:  # a resumed run shortens the file
            self._timeouts.learn(ROUND, now_s - self._since_s)
            self._since_s = now_s
        limit_s = TIMEOUTS * max(self._timeouts.longest_wait_s(ROUND), self._least_s)
        return limit_s if now_s - self._since_s > limit_s else 0.0

    def _written(self) -> int:
        return self._file.stat().st_size if self._file.exists() else 0


def carry_out(
    comparison: ComparisonPlan,
    jobs: int,
    console: Console,
    *,
    finished: Callable[[PlannedRun], None] = lambda run: None,
    budget_s: float = math.inf,
) -> dict[str, str]:
    """Carry out the unfinished runs of `comparison`, `jobs` at a time; `console` shows their progress.

    After any end (an error, a signal, even SIGKILL), no process that it started is left. `finished` is called with each
    run that finishes now. After `budget_s` seconds the processes are ended; the next call continues from their
    checkpoints.

    Returns the failed runs' names, and why each failed. Raises ConfigError if another process is carrying out the same
    comparison.
    """
    make_private_folder(comparison.out)
    with locked_comparison(comparison.out), exit_on_signals():
        comparison.write()
        make_private_folder(comparison.out / "runs")
        (comparison.out / "failures.jsonl").unlink(missing_ok=True)
        with RunProcesses(comparison.out, jobs, console, finished, budget_s) as run_processes:
            return run_processes.work(comparison.runs)


class RunProcesses:
    """Processes of the runs of a comparison in `out`, up to `jobs` at a time; leaving the block ends them all."""

    def __init__(
        self,
        out: Path,
        jobs: int,
        console: Console,
        finished: Callable[[PlannedRun], None] = lambda run: None,
        budget_s: float = math.inf,
    ) -> None:
        self._out = out
        self._most = jobs
        self._console = console
        self._finished = finished
        self._deadline_s = time.monotonic() + budget_s
        self._waiting: list[PlannedRun] = []
        self._jobs = 0
        self._began_s = time.monotonic()
        self._carried_out = self._before = self._planned = 0
        self._running: dict[int, tuple[PlannedRun, processes.Child]] = {}
        self._watches: dict[int, RoundWatch] = {}
        self._failures: dict[str, str] = {}
        self._restarts: Counter[str] = Counter()
        self._starter: Starter | None = None

    def __enter__(self) -> "RunProcesses":
        return self

    def __exit__(self, *error: object) -> None:
        with signals_deferred():
            processes.end([child for _, child in self._running.values()], GRACE_S)
            if self._starter is not None:
                self._starter.close()

    def work(self, runs: Sequence[PlannedRun]) -> dict[str, str]:
        """Carry out the unfinished runs of `runs`. Returns failed run -> reason."""
        self._waiting = [run for run in runs if not run.finished]
        self._planned = len(runs)
        self._before = self._planned - len(self._waiting)
        self._jobs = min(self._most, len(self._waiting))
        while (self._waiting or self._running) and time.monotonic() < self._deadline_s:
            for slot in range(self._jobs):
                if slot not in self._running and self._waiting:
                    self._start(slot, self._waiting.pop(0))
            time.sleep(POLL_S)
            for slot, (run, child) in list(self._running.items()):
                if (code := child.poll()) is not None:
                    self._finish(slot, run, child, code)
                elif limit_s := self._watches[slot].overdue_s(time.monotonic()):
                    self._say(f"{run.name}: killed: it wrote no round for {limit_s:.0f} s (see 'reply-timeout-s')")
                    if processes.end([child], GRACE_S) and self._starter is not None:
                        self._starter.close()  # it has not noticed the end, so it is frozen too
        return self._failures

    def _start(self, slot: int, run: PlannedRun) -> None:
        self._say(f"{run.name}: {'resumed' if (run.folder / 'checkpoint.npz').exists() else 'started'}")
        inline = choose(run.config, cores_each(self._jobs)).engine == "inline"
        arguments = prepare(run, workers=workers_each(run.config, self._jobs), inline=inline)
        environment = os.environ | (visible_gpus(slot, run.config, gpu_count()) if self._jobs > 1 else {})
        command, log = [*FEDSEL, *arguments], run.folder.with_name(f"{run.name}.log")
        try:
            starter = self._prepared_starter(run)
            with signals_deferred():
                child = starter.start(run.name, str(run.folder), command, log, Path.cwd(), environment)
                self._running[slot] = run, child
        except (TimeoutError, ConnectionError) as error:
            if not self._again(run, str(error)):
                raise OSError(
                    f"{run.name} cannot be started: {error}. What was done is kept: start the comparison again."
                ) from error
            return
        self._watches[slot] = RoundWatch(run, time.monotonic())

    def _prepared_starter(self, run: PlannedRun) -> Starter:
        """The starter of the runs, with the data of `run` loaded; a new one if it was killed."""
        if self._starter is not None and not self._starter.running:
            self._starter.close()
            self._starter = None
        self._starter = self._starter or Starter(PREPARATION)
        timeout_s = run.config.replies.reply_timeout_s or math.inf
        self._starter.prepare(timeout_s, data=run.config.data.values(), seed=run.config.run.seed)
        return self._starter

    def _finish(self, slot: int, run: PlannedRun, child: processes.Child, code: int) -> None:
        processes.end([child], GRACE_S)
        del self._running[slot]
        if run.finished and (code == 0 or code > 128):
            self._carried_out += 1
            progress = progress_of_run(run.name, run.folder)
            score = "" if progress.score is None else f", {score_title(progress.score_name)} {progress.score:.4f}"
            self._say(f"{run.name}: finished after {progress.round} rounds{score}; {self._time_left()}")
            self._finished(run)
            return
        if code > 128 and self._again(run, ended_by(code)):
            return
        self._failures[run.name] = reason = failure_reason(code, child.log)
        with (self._out / "failures.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": run.name, "exit_code": code, "message": reason}) + "\n")
        self._carried_out += 1
        self._say(f"{run.name}: failed, {reason}; {self._time_left()}")

    def _time_left(self) -> str:
        """Number of the runs that have ended, and about how long the others take at this pace."""
        ended = self._before + self._carried_out
        pace_s = (time.monotonic() - self._began_s) / max(1, self._carried_out)
        left = self._planned - ended if self._carried_out else 0
        return f"{ended} of {self._planned} runs" + (f", about {duration_text(left * pace_s)} left" if left else "")

    def _again(self, run: PlannedRun, reason: str) -> bool:
        """Restart a run whose process ended for `reason`; False if it was restarted too often."""
        if self._restarts[run.name] == RESTARTS:
            return False
        self._restarts[run.name] += 1
        self._say(f"{run.name}: {reason}, and restarted")
        self._waiting.insert(0, run)
        return True

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def prepare(run: PlannedRun, *, workers: int, inline: bool) -> list[str]:
    """Arguments of `fedsel` for `run`, inline or with Ray `workers`, from its checkpoint if it has one."""
    here = ["--engine", "inline", "--set", "workers=0"] if inline else []
    texts = [value for value in run.config.values().values() if isinstance(value, str)]
    allowed = [f"--allow-code={name}" for name in sorted({name for text in texts for name in CODE.findall(text)})]
    if (run.folder / "config.json").exists():
        return ["run", "--resume", str(run.folder), *here, *allowed]
    discard_empty(run.folder)
    values = run.config.values() | ({} if inline else {"workers": workers})
    preset = run.folder.with_name(f"{run.name}.toml")
    preset.write_text(tomli_w.dumps(values), encoding="utf-8")
    return ["run", "--preset", str(preset), "--out", str(run.folder), *here, *allowed]


def failure_reason(code: int, log: Path) -> str:
    """Reason of a failure: the last line that the run wrote, and its exit code or the signal that ended it."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("fedsel: ") if lines else "nothing in its log"
    return f"{last} ({ended_by(code)}; see {log})"


def ended_by(code: int) -> str:
    """Name the signal that ended a process, or its exit code."""
    return f"ended by {signal.Signals(code - 128).name}" if code > 128 else f"exit code {code}"


@contextmanager
def locked_comparison(folder: Path) -> Iterator[None]:
    """Hold the lock of a comparison. Any end of this process releases it."""
    with (folder / "compare.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"Another `fedsel compare` is running in {folder}; wait for it, or end it.") from error
        yield
