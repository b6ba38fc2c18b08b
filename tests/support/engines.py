"""Runs by other engines: in a process that imports all packages once, and in a deployment."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fedsel_app.wiring.configuration import resolve
from simulation.engines import inline_engine, ray_engine
from simulation.operations.deployment.flower_cli import node_config_text
from simulation.operations.deployment.local_deployment import Deployment

SPAWN = multiprocessing.get_context("spawn")
AT_ONCE = {
    "fedcor": {"fedcor.warmup": 1, "fedcor.first-steps": 50, "fedcor.steps": 20},
    "fedcvr-bolt": {"fedcvr-bolt.warmup-rounds": 1},
}
"""Settings with which these methods use their own rule within three rounds."""
Settings = dict[str, object]


def inline(settings: Settings) -> None:
    inline_engine.simulate(resolve(settings), lambda row: None)


def ray(settings: Settings) -> None:
    ray_engine.simulate(resolve(settings), lambda row: None)


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessPoolExecutor]:
    """A process that imports torch, Flower and Ray once."""
    with ProcessPoolExecutor(1, SPAWN) as pool:
        yield pool


def deployment_of(clients: int, folder: Path) -> Deployment:
    """A SuperLink and the SuperNodes of all clients, which execute one run after the other."""
    nodes = [node_config_text(client, clients, {"state-dir": str(folder / "state")}) for client in range(clients)]
    return Deployment(folder / "processes", nodes)
