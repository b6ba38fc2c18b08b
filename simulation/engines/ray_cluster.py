"""Ray clusters that already run: connect this process, and refuse a cluster that cannot carry out the run."""

import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedsel_app.config import ConfigError
from fedsel_app.records.fedsel_folder import make_fedsel_folder
from simulation.engines.flower_engine import cluster_workers

CONNECT_TIMEOUT_S = 10
NODE_TIMEOUT_S = 120
"""Timeout in seconds of the first task on each node."""
FREE_TIMEOUT_S = 20
"""Seconds to wait for all CPUs of the cluster to be free."""
INHERITED = ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "CUBLAS_WORKSPACE_CONFIG")
"""Environment variables that workers on other machines get from this process."""


def join(address: str, resources: Mapping[str, float], folder: Path) -> int:
    """Connect this process to the Ray cluster at `address`, and count its workers.

    Parameters
    ----------
    address : HOST:PORT, or "auto" for the cluster of this machine
    resources : CPUs and GPUs of one worker
    folder : folder of the clients' states. It is made here, and every node must have access to it.

    Returns
    -------
    int
        Number of workers.

    Raises
    ------
    ConfigError
        If no cluster answers, no node has room for a worker, another job runs there, or a node lacks fedsel or the
        folder.
    """
    _connect(address)
    try:
        workers = cluster_workers(resources)
        _refuse_busy(address)
        _refuse_unshared(folder)
    except ValueError as error:
        ray.shutdown()
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"No node of the Ray cluster at {address} has what a worker takes, {dict(resources)}: lower 'client-gpus', "
            "or add nodes."
        ) from error
    return workers


def _connect(address: str) -> None:
    """Connect this process to the cluster. Raises ConfigError if none answers."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    try:
        if ":" in address:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": inherited | {"PYTHONPATH": os.pathsep.join(sys.path)}},
        )
    except (OSError, ValueError, RuntimeError, SystemExit) as error:
        raise ConfigError(
            f"No Ray cluster answers at 'ray-address' {address} ({error}). Start one there with `ray start --head`, "
            "or leave 'ray-address' empty."
        ) from error


def _refuse_busy(address: str) -> None:
    """Raise ConfigError if another job uses a CPU. Flower needs all CPUs and would wait for this one forever."""
    total = ray.cluster_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
    deadline_s = time.monotonic() + FREE_TIMEOUT_S
    while (free := ray.available_resources().get("CPU", 0.0)) < total:  # type: ignore[no-untyped-call]
        if time.monotonic() > deadline_s:
            raise ConfigError(
                f"The Ray cluster at {address} has {free:g} of {total:g} CPUs free, and a run takes them all: wait "
                "until what else runs there has ended."
            )
        time.sleep(0.5)


def _refuse_unshared(folder: Path) -> None:
    """Raise ConfigError unless every node has this code and `folder`, because each may get a client's next message."""
    make_fedsel_folder(folder)
    sees_path = ray.remote(num_cpus=0, max_retries=0)(_sees)
    with tempfile.NamedTemporaryFile(dir=folder) as probe:
        answers: list[tuple[str, Any]] = []
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["Alive"]:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                answers.append(
                    (node["NodeManagerAddress"], sees_path.options(scheduling_strategy=there).remote(probe.name))
                )
        for name, answer in answers:
            try:
                sees = ray.get(answer, timeout=NODE_TIMEOUT_S)
            except RayError as error:
                reason = str(error).strip().splitlines()[-1]
                raise ConfigError(
                    f"The Ray node {name} cannot run fedsel ({reason}): install it there as it is here."
                ) from error
            if not sees:
                raise ConfigError(
                    f"The Ray node {name} does not see {folder}, where clients keep their state: set 'out' to a folder "
                    "that all nodes share."
                )


def _sees(path: str) -> bool:
    return Path(path).exists()
