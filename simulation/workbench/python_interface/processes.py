"""Processes for a run from Python: this process, whose state is restored afterwards, or a new one if the run uses Ray.

When Ray ends, it also ends its process, and this process may be a notebook.
"""

import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tomli_w
import torch
from threadpoolctl import threadpool_limits

from fedsel_app.config import DECLARED, ConfigError
from fedsel_app.records.reading import check_round, read_rows
from fedsel_app.records.schema import Row
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import run_folder
from simulation.engines import inline_engine, processes
from simulation.engines.preflight import refuse_unrunnable
from simulation.engines.starter import Starter
from simulation.workbench.comparison.run_processes import FEDSEL, GRACE_S, code_arguments, failure_reason

POLL_S = 0.2
TURN = threading.RLock()


def simulate_inline(config: AppConfig, on_round: Callable[[Row], None]) -> Path:
    """Simulate a run with the inline engine and return its folder. Ctrl-C raises KeyboardInterrupt.

    Runs in several threads take turns: they share torch's global generator.
    """
    with TURN, _restored():
        try:
            return inline_engine.simulate(config, on_round)
        except SystemExit as ended:
            raise KeyboardInterrupt from ended


@contextmanager
def _restored() -> Iterator[None]:
    """After the block, restore what a run changes in its process: threads, torch's modes, Flower's log level."""
    flower, threads = logging.getLogger("flwr"), torch.get_num_threads()
    level, deterministic = flower.level, torch.are_deterministic_algorithms_enabled()
    benchmark = torch.backends.cudnn.benchmark
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        flower.setLevel(level)
        torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != deterministic:  # the call imports torch's compiler
            torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = benchmark


def simulate_apart(config: AppConfig, on_round: Callable[[Row], None], completed: int) -> Path:
    """Simulate a run with Ray in a new process, or resume it after `completed` rounds. Returns its folder.

    Raises RuntimeError if the process fails. The message has the last line of its output, and names the file with all
    of it.
    """
    refuse_main(config)
    refuse_unrunnable(config)
    folder, work = run_folder(config), Path(tempfile.mkdtemp(prefix="fedsel-"))
    log, preset, values = work / "run.log", work / "run.toml", config.values()
    if config.records.resume:
        changed = [key for key, entry in DECLARED.items() if not (entry.scope.numbers or entry.own)]
        settings_here = [f"{key}={json.dumps(values[key])}" for key in changed]
        arguments = ["--resume", str(folder), *(word for text in settings_here for word in ("--set", text))]
    else:
        preset.write_text(tomli_w.dumps(values))
        arguments = ["--preset", str(preset), "--out", str(folder)]
    command = [*FEDSEL, "run", *arguments, *code_arguments(values)]
    with Starter() as starter:
        with processes.signals_deferred():
            child = starter.start("run", str(work), command, log, Path.cwd(), os.environ)
        try:
            while (code := child.poll()) is None:
                time.sleep(POLL_S)
                completed = _show_new(folder, completed, on_round)
        finally:
            processes.end([child], GRACE_S)
    _show_new(folder, completed, on_round)
    if code:
        raise RuntimeError(f"The run in {folder} failed: {failure_reason(code, log)}.")
    for file in (log, preset):
        file.unlink(missing_ok=True)
    work.rmdir()
    return folder


def refuse_main(config: AppConfig) -> None:
    """Raise ConfigError if a setting names code of the main program or notebook, which no other process can import."""
    for key, value in config.values().items():
        if str(value).startswith("__main__:"):
            raise ConfigError(
                f"The '{key}' parameter names {value!r}, but another process carries out this run, and it cannot "
                "import __main__: write the code to a file (in a notebook with %%writefile), and name that module."
            )


def _show_new(folder: Path, completed: int, on_round: Callable[[Row], None]) -> int:
    """Call `on_round` with each round after `completed`. Returns the number of completed rounds."""
    rows = read_rows(folder / "rounds.jsonl", check_round)
    for row in rows[completed:]:
        on_round(row)
    return max(completed, len(rows))
