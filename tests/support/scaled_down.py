"""Smaller replacements of the engines, and a folder with the files that readers of the documentation write."""

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsel_app.caches import forget
from fedsel_app.config import DataConfig, Value
from fedsel_app.data import dataset
from fedsel_app.wiring import named_files
from fedsel_app.wiring.configuration import AppConfig, known_defaults, resolve, resolve_run_config
from fedsel_app.wiring.named_files import run_folder
from laboratory.published import expected_shape
from simulation.engines import inline_engine, ray_engine
from simulation.operations.deployment import deployed_run, start, submission
from simulation.operations.deployment.flower_cli import SubmittedRun
from simulation.workbench.comparison import run_processes
from simulation.workbench.comparison.plan import ComparisonPlan
from simulation.workbench.comparison.plan_files import BestTrial
from simulation.workbench.tuning import tune
from simulation.workbench.tuning.plan import Tuning
from tests.support.documentation import PAGES, written_files
from tests.support.in_process import run_config
from tests.support.pictures import draw_blank_pictures
from tests.support.sources import ROOT

SMALL = {
    "rounds": 1,
    "clients": 5,
    "cohort": 2,
    "buffer-size": 2,
    "local-steps": 1,
    "local-epochs": 0,
    "batch-size": 8,
    "client-examples": 0,
    "probe-batches": 1,
    "isp-draws": 1,
}
PUBLISHED = "mnist", "fashion-mnist", "cifar10"


def run_small(config: AppConfig) -> Path:
    """The folder of a run of one round of few clients with few examples."""
    own = {"cohort": 3} if config.privacy.masked else {}
    work = {} if config.training.local_steps else {"local-steps": 0, "local-epochs": 1}
    small = resolve(config.values() | SMALL | own | work)
    folder = run_folder(small)
    with pytest.MonkeyPatch.context() as few:
        if small.data.data in PUBLISHED:
            few.setitem(dataset.LOADERS, small.data.data, generated_few)
            forget()
        run_config(folder, small)
    if small.data.data in PUBLISHED:
        forget()
    return folder


def simulate_small(config: AppConfig, on_round: Callable[..., None]) -> Path:
    return run_small(config)


def submit_small(app: Path, run_config: Mapping[str, Value], *others: object) -> SubmittedRun:
    run_small(resolve_run_config(known_defaults() | run_config))
    return SubmittedRun(1, "finished:completed", "")


def compare_small(comparison: ComparisonPlan, jobs: int, console: object) -> dict[str, str]:
    """Carry out only the first run and the last one."""
    comparison.out.mkdir(parents=True)
    comparison.write()
    for run in [comparison.runs[0], *comparison.runs[1:][-1:]]:
        run_small(run.config)
    return {}


def tune_small(tuning: Tuning, jobs: int, console: object) -> dict[str, str]:
    """Carry out only the comparison, as if the default settings were the best of all trials."""
    best = {
        name: BestTrial(trial=1, settings=dict(own[0]), values=[0.5], failures={})
        for name, own in tuning.settings.items()
    }
    failed = compare_small(tuning.comparison(best), jobs, console)
    tuning.write(best)
    return failed


def generated(config: DataConfig, seed: int) -> dataset.Dataset:
    """Random samples in the shape of a published data set."""
    return generated_once(config, 50_000)


def generated_few(config: DataConfig, seed: int) -> dataset.Dataset:
    return generated_once(config, 600)


@cache
def generated_once(config: DataConfig, examples: int) -> dataset.Dataset:
    expected = expected_shape(config)
    assert expected is not None
    return dataset.from_arrays(arrays(*expected[:2], examples), config.data)


def arrays(shape: tuple[int, ...], classes: int, examples: int = 2000) -> dict[str, Any]:
    """Random images of `shape` with labels, `examples` to train and 20 to test."""
    rng = np.random.default_rng(0)
    found = {}
    for part, count in (("train", examples), ("test", 20)):
        found[f"x_{part}"] = rng.integers(0, 256, (count, *shape), dtype=np.uint8)
        found[f"y_{part}"] = rng.integers(0, classes, count)
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the files that readers of the pages write, and with the smaller engines."""
    files = {name: code for page in PAGES.values() for name, code in written_files(page).items()}
    for name, code in files.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    (tmp_path / "laboratory").symlink_to(ROOT / "laboratory")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # The names of run folders contain the time.
    seconds = (datetime.fromtimestamp(second) for second in itertools.count())
    monkeypatch.setattr(named_files, "datetime", SimpleNamespace(now=lambda: next(seconds)))
    for engine in (inline_engine, ray_engine):
        monkeypatch.setattr(engine, "simulate", simulate_small)
    monkeypatch.setattr(run_processes, "carry_out", compare_small)
    monkeypatch.setattr(tune, "run_tuning", tune_small)
    for module in (deployed_run, submission):
        monkeypatch.setattr(module, "submit_to_flower", submit_small)
    monkeypatch.setattr(submission, "obstacle", lambda *_: None)
    monkeypatch.setattr(submission, "show_status", lambda *_: None)
    monkeypatch.setattr(submission, "stop_run", lambda *_: None)
    monkeypatch.setattr(start, "run_machine", lambda *_, **__: None)
    monkeypatch.setattr(deployed_run, "Deployment", lambda *_, **__: nullcontext(SimpleNamespace(flwr_home=tmp_path)))
    draw_blank_pictures(monkeypatch)
    for name in PUBLISHED:
        monkeypatch.setitem(dataset.LOADERS, name, generated)
    yield tmp_path
    forget()
    for name in files:
        sys.modules.pop(name.removesuffix(".py"), None)
