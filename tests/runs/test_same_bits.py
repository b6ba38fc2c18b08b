"""Every method ends with the same bits, in one process as in any other way to run it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine
from simulation.operations.deployment.app_folder import app_folder
from simulation.operations.deployment.flower_cli import environment, tool
from simulation.operations.deployment.local_deployment import Deployment
from strategies import STRATEGIES, find_strategy
from tests.support.engines import AT_ONCE, SPAWN, Settings, deployment_of, engine, inline, ray
from tests.support.processes import carried_out
from tests.support.programs import flower_home
from tests.support.rounds import assert_same, rounds

SMALL = {"clients": 4, "cohort": 3, "rounds": 3, "local-steps": 10, "device": "cpu", "checkpoint-every": 1}
ISP = {"participation": "isp", "isp-interval": 2, "isp-draws": 3, "holdout-fraction": 0.2}
__all__ = ["engine", "flower_home"]
WAYS = ("Ray 1", "Ray 2", "killed and resumed", "flwr run", "deployment")


AXES: dict[str, Settings] = {
    "label-flip random": {"attack": "label-flip", "attackers": "1,3"},
    "alie random": {"attack": "alie", "attackers": "1,3"},
    "common-k oort": {"compressor": "common-k", "ring-bits": 8, "kept-fraction": 0.4},
    "layers power-of-choice": {
        "model": "mlp",
        "local-layers": "5.*",
        "client-eval": True,
        "holdout-fraction": 0.2,
    },
    "metric tests.runs.test_selection_by_metrics:LowestMetric": {"lowest-metric.after": True, "holdout-fraction": 0.2},
}
"""What other axes add to a method, whose name comes last. A deployment refuses attacks."""
METHODS = [
    *STRATEGIES,
    *AXES,
    *(f"isp around {method}" for method in ("random", "power-of-choice", "fedcor", "fed-cbs", "delta")),
]


def settings_of(name: str) -> Settings:
    method = name.rpartition(" ")[2]
    more = {"terraform": {"terraform.min-clients": 2}}.get(method, {}) | (ISP if name.startswith("isp") else {})
    return SMALL | AT_ONCE.get(method, {}) | more | AXES.get(name, {}) | {"strategy": method}


def killed(settings: Settings) -> None:
    """Run until round 2 is on record, and end by SIGKILL."""

    def kill(row: Settings) -> None:
        if row["round"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    inline_engine.simulate(resolve(settings), kill)


def check(rows: list[dict[str, Any]], method: str) -> None:
    """Every method learns, and nobody fails."""
    assert [row["round"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert row["failures"] == []
        assert row["aggregated"] == row["selected"] != []
        searched = SMALL["clients"] if "search" in row else 0
        assert row["client_updates"] == len(row["aggregated"]) + searched
    if method.startswith("isp"):
        assert ["search" in row for row in rows] == [True, False, True]
        assert rows[0]["cohort"] == rows[1]["cohort"]
    elif find_strategy(method.rpartition(" ")[2]).exact_cohort:
        assert [len(row["selected"]) for row in rows] == [SMALL["cohort"]] * 3
    assert rows[-1]["accuracy"] > 0.35


@pytest.fixture(scope="module")
def reference(engine: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a method's run in one process."""
    base = tmp_path_factory.mktemp("inline")

    def folder(method: str) -> Path:
        if not (base / method).exists():
            engine.submit(inline, settings_of(method) | {"out": str(base / method)}).result()
            check(rounds(base / method), method)
        return base / method

    return folder


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment_of(SMALL["clients"], tmp_path_factory.mktemp("deployment")) as deployment:
        yield deployment


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS)
def test_inline_and_another_way_give_the_same_bits(way, method, tmp_path, engine, reference, request):
    settings, folder, whole = settings_of(method), tmp_path / "run", reference(method)
    if way == "deployment" and "attack" in settings:
        pytest.skip("a deployment refuses attacks")
    if way in ("flwr run", "deployment") and ":" in method:
        pytest.skip("the bundle has no method of the tests")
    if way.startswith("Ray"):
        engine.submit(ray, settings | {"out": str(folder), "engine": "ray", "workers": int(way[-1])}).result()
    elif way == "killed and resumed":
        process = SPAWN.Process(target=killed, args=(settings | {"out": str(folder)},))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        engine.submit(inline, settings | {"out": str(folder), "resume": True}).result()
    elif way == "flwr run":
        values = [f"{key}={json.dumps(value)}" for key, value in (settings | {"out": str(folder)}).items()]
        done = subprocess.run(
            [tool("flwr"), "run", ".", "--stream", "--run-config", " ".join(values)],
            cwd=app_folder(), env=environment(None) | request.getfixturevalue("flower_home"),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        config, lines = resolve(settings | {"links": "simulated", "out": str(folder)}), []
        assert carried_out(request.getfixturevalue("deployment"), config, lines).completed, "".join(lines)
    assert_same(folder, whole)


LATE = {"strategy": "hetero-select", "clients": 9, "cohort": 5, "rounds": 8, "waiting": "buffered", "clock": "full"}
LATE |= {"spread": "log-normal", "step-min-s": 0.01, "step-max-s": 5.0}


@pytest.mark.slow
@pytest.mark.e2e
def test_events_have_the_same_order_with_any_number_of_workers(tmp_path, engine):
    settings = SMALL | LATE
    engine.submit(inline, settings | {"out": str(tmp_path / "inline")}).result()
    assert max(late for row in rounds(tmp_path / "inline") for late in row["staleness"]) > 1
    for workers in (1, 2, 4):
        folder = tmp_path / str(workers)
        engine.submit(ray, settings | {"out": str(folder), "engine": "ray", "workers": workers}).result()
        assert_same(folder, tmp_path / "inline")
