"""Comparison at work (`fedsel compare`): its runs as processes of their own, several at a time, each done once.

Runs of the inline engine are forked from one warm server, which has imported everything and loaded the data sets.
A run that is finished stays as it is, one with a checkpoint goes on from it, any other begins at its first round; so a
comparison that was killed is completed by the same command.
"""

import fcntl
import json
import math
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedsel_app.config import ConfigError
from fedsel_app.records.own_folder import discard_empty, make_private_folder
from fedsel_app.records.run_folder import read_summary
from simulation import processes
from simulation.comparison.placement import gpu_count, visible_gpus
from simulation.comparison.plan import Comparison, PlannedRun
from simulation.comparison.round_watch import RoundWatch
from simulation.comparison.warm_server import WarmServer
from simulation.comparison.watch import REFRESH_S, progress_table, read_progress, read_run
from simulation.engines.choice import choose
from simulation.terminal import whole_table

FEDSEL = (sys.executable, "-P", "-m", "fedsel_app.cli")
PREPARATION = "simulation.preparation"
POLL_S = 0.05
GRACE_S = 3.0
RESTARTS = 2
"""Times that a run goes on from its checkpoint after its process was killed, or froze."""
MEASURES = {
    "final_accuracy": ("final accuracy", ".4f"),
    "stable_accuracy": ("stable accuracy", ".4f"),
    "rounds_to_target": ("rounds to target", ".1f"),
    "time_to_target_s": ("s to target", ".1f"),
    "uplink_to_target_mb": ("MB to target", ".3f"),
    "exchanges_to_target": ("exchanges to target", ".0f"),
    "exchanges_to_best_validation": ("exchanges to best validation", ".0f"),
}


def compare(comparison: Comparison, jobs: int, console: Console) -> dict[str, str]:
    """Carry out the unfinished runs of `comparison` as `carry_out` does, and print the results."""
    failures = carry_out(comparison, jobs, console)
    console.print(results_table(comparison))
    for name, reason in failures.items():
        console.print(f"{name} failed: {reason}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"Next: fedsel report {comparison.out}", markup=False, highlight=False, soft_wrap=True)
    return failures


def carry_out(comparison: Comparison, jobs: int, console: Console) -> dict[str, str]:
    """Carry out the unfinished runs of `comparison`, `jobs` at a time; `console` shows their progress.

    However it ends (an error, a signal, even SIGKILL), no process that it started stays behind.

    Returns
    -------
    dict
        The failed runs' names, and why each failed.

    Raises
    ------
    ConfigError
        If another process is at work on the same comparison.
    """
    make_private_folder(comparison.out)
    with _locked(comparison.out), processes.exit_on_signals():
        comparison.write()
        make_private_folder(comparison.out / "runs")
        (comparison.out / "failures.jsonl").unlink(missing_ok=True)
        with RunProcesses(comparison, jobs, console) as run_processes:
            return run_processes.work()


class RunProcesses:
    """Processes of a comparison's runs; leaving the block ends them all."""

    def __init__(self, comparison: Comparison, jobs: int, console: Console) -> None:
        self._comparison = comparison
        self._console = console
        self._waiting = [run for run in comparison.runs if not run.finished]
        self._jobs = min(jobs, len(self._waiting))
        self._running: dict[int, tuple[PlannedRun, processes.Child]] = {}
        self._watches: dict[int, RoundWatch] = {}
        self._failures: dict[str, str] = {}
        self._restarts: Counter[str] = Counter()
        self._server: WarmServer | None = None
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> "RunProcesses":
        return self

    def __exit__(self, *error: object) -> None:
        with processes.signals_deferred():
            processes.end([child for _, child in self._running.values()], GRACE_S)
            if self._server is not None:
                self._server.close()

    def work(self) -> dict[str, str]:
        """Carry out the waiting runs; the failed runs' names, and why each failed."""
        if not self._console.is_terminal:
            self._until_done()
        else:
            with self._live:
                self._until_done()
        return self._failures

    def _until_done(self) -> None:
        shown = -math.inf
        while self._waiting or self._running:
            for slot in range(self._jobs):
                if slot not in self._running and self._waiting:
                    self._start(slot, self._waiting.pop(0))
            time.sleep(POLL_S)
            for slot, (run, child) in list(self._running.items()):
                if child.process.poll() is not None:
                    self._finish(slot, run, child)
                elif limit_s := self._watches[slot].overdue_s(time.monotonic()):
                    self._say(f"{run.name}: killed, as it wrote no round for {limit_s:.0f} s (see 'reply-timeout-s')")
                    self._kill(child)
            if self._console.is_terminal and (time.monotonic() > shown + REFRESH_S or not self._running):
                self._live.update(progress_table(read_progress(self._comparison.out)), refresh=True)
                shown = time.monotonic()

    def _start(self, slot: int, run: PlannedRun) -> None:
        self._say(f"{run.name}: {'goes on' if run.checkpointed else 'started'}")
        inline = choose(run.config).engine == "inline"
        arguments = prepare(run, side_by_side=self._jobs > 1, inline=inline)
        environment = visible_gpus(slot, run.config, gpu_count()) if self._jobs > 1 else {}
        log, mark = run.folder.with_name(f"{run.name}.log"), str(run.folder)
        try:
            server = self._warm_server(run) if inline else None
            with processes.signals_deferred():
                if server is not None:
                    child = server.start(run.name, mark, arguments, log, environment)
                else:
                    command = [*FEDSEL, *arguments]
                    child = processes.start(
                        run.name, mark, command, log, Path.cwd(), os.environ | environment, with_parent=True
                    )
                self._running[slot] = run, child
        except TimeoutError as error:
            if not self._again(run, str(error)):
                raise
            return
        self._watches[slot] = RoundWatch(run, time.monotonic())

    def _warm_server(self, run: PlannedRun) -> WarmServer:
        """The server that forks the inline runs, with the data of `run` loaded; another where it was killed."""
        if self._server is not None and not self._server.running:
            self._server.close()
            self._server = None
        self._server = self._server or WarmServer(FEDSEL[-1], PREPARATION)
        self._server.prepare(run.config.values(), run.config.replies.reply_timeout_s or math.inf)
        return self._server

    def _kill(self, child: processes.Child) -> None:
        """Kill the process of a run, and the warm server where that does not see it: it is frozen too."""
        if processes.end([child], GRACE_S) and self._server is not None:
            self._server.close()

    def _finish(self, slot: int, run: PlannedRun, child: processes.Child) -> None:
        code = child.process.wait()
        processes.end([child], GRACE_S)
        del self._running[slot]
        if run.finished and (code == 0 or code > 128):
            progress = read_run(run.name, run.folder)
            accuracy = "" if progress.accuracy is None else f", accuracy {progress.accuracy:.4f}"
            self._say(f"{run.name}: finished after {progress.round} rounds{accuracy}")
            return
        if code > 128 and self._again(run, ended_by(code)):
            return
        self._failures[run.name] = reason = failure_reason(code, child.log)
        with (self._comparison.out / "failures.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"name": run.name, "exit_code": code, "message": reason}) + "\n")
        self._say(f"{run.name}: failed, {reason}")

    def _again(self, run: PlannedRun, reason: str) -> bool:
        """Take a run up again whose process ended for `reason`; False if that was done often enough."""
        if self._restarts[run.name] == RESTARTS:
            return False
        self._restarts[run.name] += 1
        self._say(f"{run.name}: {reason}, and taken up again")
        self._waiting.insert(0, run)
        return True

    def _say(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def prepare(run: PlannedRun, *, side_by_side: bool, inline: bool) -> list[str]:
    """Arguments of `fedsel` that carry out `run`, from its checkpoint if it has one.

    One of several runs `side_by_side` trains with one worker, unless it is `inline` or its settings say how many.
    """
    here = ["--engine", "inline", "--set", "workers=0"] if inline else []
    if (run.folder / "config.json").exists():
        return ["run", "--resume", str(run.folder), *here]
    discard_empty(run.folder)
    values = {key: value for key, value in run.config.values().items() if key not in ("out", "state-dir", "resume")}
    if side_by_side and not inline:
        values["workers"] = run.config.execution.workers or 1
    preset = run.folder.with_name(f"{run.name}.toml")
    preset.write_text(tomli_w.dumps(values), encoding="utf-8")
    return ["run", "--preset", str(preset), "--out", str(run.folder), *here]


def failure_reason(code: int, log: Path) -> str:
    """Reason of a failure: the last line that the run wrote, and its exit code or the signal that ended it."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1].removeprefix("fedsel: ") if lines else "nothing in its log"
    return f"{last} ({ended_by(code)}; see {log})"


def ended_by(code: int) -> str:
    """Name the signal that ended a process, or its exit code."""
    return f"ended by {signal.Signals(code - 128).name}" if code > 128 else f"exit code {code}"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a comparison; it is released with this process, however that ends."""
    with (folder / "compare.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"Another `fedsel compare` is at work in {folder}; wait for it, or end it.") from error
        yield


def plan_table(comparison: Comparison, jobs: int) -> Table:
    """Table of the planned runs: done and left, a line a run."""
    caption = f"{comparison.kind} In {comparison.out}, side by side: {jobs}".lstrip()
    table = whole_table("run", "strategy", "seed", "engine", "rounds", "done", "what is left", caption=caption)
    for run in comparison.runs:
        done = read_run(run.name, run.folder).round
        left = "nothing" if run.finished else "goes on from its checkpoint" if run.checkpointed else "all of it"
        table.add_row(
            run.name,
            run.strategy,
            str(run.seed),
            choose(run.config).engine,
            str(run.config.run.rounds),
            str(done),
            left,
        )
    return table


def results_table(comparison: Comparison) -> Table:
    """Table of means ± standard deviations over the seeds, a line a strategy and cell of the grid."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in comparison.runs:
        label = " ".join([run.strategy, *(f"{key}={value}" for key, value in run.cell.items())])
        groups.setdefault(label, []).append(run)
    title = f"Mean ± standard deviation over the seeds {', '.join(map(str, comparison.seeds))}"
    numbers = "runs", *(title for title, _ in MEASURES.values()), "client failures"
    table = whole_table("strategy", numbers=numbers, title=title, caption=comparison.kind)
    for label, runs in groups.items():
        read = (read_summary(run.folder) for run in runs)
        summaries = [summary for summary in read if summary is not None]
        cells = [mean_and_deviation(summaries, key, form) for key, (_, form) in MEASURES.items()]
        failures = str(sum(summary["failure_count"] for summary in summaries))
        table.add_row(label, f"{len(summaries)}/{len(runs)}", *cells, failures)
    return table


def mean_and_deviation(summaries: Sequence[Mapping[str, Any]], key: str, form: str) -> str:
    """Mean ± standard deviation (n - 1) over the runs that have the number, and their share if not all do."""
    values = [summary[key] for summary in summaries if summary.get(key) is not None]
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):{form}}" if len(values) > 1 else ""
    share = f" ({len(values)} of {len(summaries)})" if len(values) < len(summaries) else ""
    return f"{statistics.fmean(values):{form}}{deviation}{share}"
