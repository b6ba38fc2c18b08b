"""What Flower's Ray engine leaves out: workers that die, and clusters that already run."""

import logging
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from flwr.app import Context, Message
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from flwr.simulation.ray_transport.ray_actor import pool_size_from_resources
from ray.exceptions import ActorDiedError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedsel_app.config import ConfigError

REPLACED = {"max_restarts": 10, "max_task_retries": 1}
"""Ray starts a dead worker anew this often, and gives it the message that it had once more: a client that is asked
again answers the same, so nothing in the run changes. A message that ends two workers is its client's failure."""
ANSWER_S, NODE_ANSWER_S, FREE_S = 10, 120, 20
INHERITED = ("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "CUBLAS_WORKSPACE_CONFIG")


@contextmanager
def watched(end: Callable[[str], None]) -> Iterator[None]:
    """Call `end` with a sentence's beginning when a worker is dead for good.

    Flower would keep it and hand it most messages, as it fails them at once: rounds of failures in a run that ends
    well.
    """
    process = RayBackend.process_message

    def process_message(self: RayBackend, message: Message, context: Context) -> tuple[Message, Context]:
        try:
            return process(self, message, context)
        except ActorDiedError as error:
            end(describe(error))
            raise

    RayBackend.process_message = process_message  # type: ignore[method-assign]
    try:
        yield
    finally:
        RayBackend.process_message = process  # type: ignore[method-assign]


def describe(error: ActorDiedError) -> str:
    """Which worker died, as far as Ray says it."""
    told = dict(re.findall(r"^\s*(pid|ip): (\S+)$", str(error), re.MULTILINE))
    which = f" with pid {told['pid']} on {told['ip']}" if told.keys() >= {"pid", "ip"} else ""
    return f"The Ray worker{which} died, perhaps for want of memory"


def join(address: str, resources: Mapping[str, float], folder: Path) -> int:
    """Connect this process to the Ray cluster at `address`; the number of its workers.

    Parameters
    ----------
    resources
        What one worker takes.
    folder
        Where the clients keep their state; made here, and every node must see it.

    Raises
    ------
    ConfigError
        If no cluster answers, it has no room, something else runs on it, or a node lacks fedsel or the folder.
    """
    try:
        if ":" in address:
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), ANSWER_S).close()
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
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
    try:
        workers: int = pool_size_from_resources(dict(resources))
        _refuse_busy(address)
        _refuse_apart(folder)
    except ValueError as error:
        ray.shutdown()
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"No node of the Ray cluster at {address} has what a worker takes, {dict(resources)}: lower 'client-gpus', "
            "or add nodes."
        ) from error
    return workers


def _refuse_busy(address: str) -> None:
    """Flower takes all CPUs, and would wait without end for one that another job holds."""
    total = ray.cluster_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
    until = time.monotonic() + FREE_S
    while (free := ray.available_resources().get("CPU", 0.0)) < total:  # type: ignore[no-untyped-call]
        if time.monotonic() > until:
            raise ConfigError(
                f"The Ray cluster at {address} has {free:g} of {total:g} CPUs free, and a run takes them all: wait "
                "until what else runs there has ended."
            )
        time.sleep(0.5)


def _refuse_apart(folder: Path) -> None:
    """Every node must have this code, and see the clients' state wherever their next message takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    look = ray.remote(num_cpus=0, max_retries=0)(_sees)
    with tempfile.NamedTemporaryFile(dir=folder) as mark:
        asked: list[tuple[str, Any]] = []
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["Alive"]:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked.append((node["NodeManagerAddress"], look.options(scheduling_strategy=there).remote(mark.name)))
        for name, answer in asked:
            try:
                sees = ray.get(answer, timeout=NODE_ANSWER_S)
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
