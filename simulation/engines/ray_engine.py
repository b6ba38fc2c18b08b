"""Ray engine: one simulated run in this process, through Flower's simulation engine."""

import os
import resource
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedsel_app.config import ConfigError
from fedsel_app.network.reply_timeout import ReplyTimeout
from fedsel_app.wiring.client import make_client_app
from fedsel_app.wiring.configuration import AppConfig
from fedsel_app.wiring.server import run_with
from simulation.engines.preflight import simulated_run
from simulation.engines.run_folders import stop_sentence
from simulation.engines.this_process import interrupted, usable_cores
from strategies.round.flower_grid import FlowerGrid

FAILED = 1
SHUTDOWN_S = 20.0
"""Timeout in seconds for the end of Ray."""
ENDING = threading.Lock()
"""Held by the thread that ends this process."""


def simulate(config: AppConfig, on_round: Callable[[dict[str, Any]], None]) -> Path:
    """Simulate a run to its end, with `resume` from its last checkpoint; return the run folder.

    `on_round` is called with the record of each finished round. Ray and this process end after Ctrl-C, if a worker died
    and cannot be restarted, and if a raylet is killed or frozen. Errors of the server and of the engine are raised.
    """
    refuse_file_size_limit()
    with simulated_run(config) as (placed, folder):
        _simulate(placed, folder, on_round)
    return folder


def refuse_file_size_limit() -> None:
    """Raise ConfigError if this process may not write files as large as Ray's object store.

    The store is a file in memory and takes a share of the machine's memory. With a smaller limit the system kills the
    raylet. Ray reports that minutes later, in a message that does not name the cause.
    """
    limit_bytes, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if limit_bytes != resource.RLIM_INFINITY and limit_bytes < memory_bytes:
        raise ConfigError(
            f"Files of this process may have {limit_bytes} bytes (`ulimit -f`), and Ray's object store needs more: "
            "lift the limit, or set 'engine' to inline."
        )


def _simulate(config: AppConfig, folder: Path, on_round: Callable[[dict[str, Any]], None]) -> None:
    """Start Ray and run the rounds."""
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a thread that calls Ray after its end would start Ray again
    protect_ports()
    from flwr.simulation import run_simulation

    from simulation.engines.flower_engine import RESTARTS, WorkerWatch, watched_engine
    from strategies.round.simulated_grid import arrivals

    workers = config.execution.workers or usable_cores()
    resources = {"num_cpus": 1.0, "num_gpus": config.execution.client_gpus, **RESTARTS}
    engine = {"address": "local", "include_dashboard": False, "num_cpus": workers}
    server_app = ServerApp()

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        pools_training = config.network.links != "measured"
        arrived = arrivals(grid)
        run_with(FlowerGrid(grid, pool=workers, pools_training=pools_training, arrived=arrived), config, on_round)

    try:
        timeouts = ReplyTimeout(config.replies.reply_timeout_s)
        watch = WorkerWatch(timeouts, lambda reason: _end_everything(reason, folder, FAILED))
        with watched_engine(watch):
            run_simulation(
                server_app=server_app,
                client_app=make_client_app(config, pooled=True),
                num_supernodes=config.run.clients,
                backend_config={"init_args": engine, "client_resources": resources},  # type: ignore[dict-item]
            )
    except (KeyboardInterrupt, SystemExit) as stop:
        if (code := interrupted(stop)) is None:
            raise
        _end_everything("Interrupted", folder, code)


def protect_ports() -> None:
    """Protect the ports of the Ray cluster that this process will start, with a token for this run.

    The whole network can reach Ray's ports, and Ray runs the code of every caller that it accepts. Ray reads these
    variables when it is imported. If it was imported before, it could not use the token, so a warning is printed.
    """
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return
    if "ray" in sys.modules:
        sys.stderr.write(
            "Ray was imported before the run, so no token protects its ports: everybody who reaches them over the "
            "network can run code on this machine. Set RAY_AUTH_MODE=token before you import Ray, or engine=inline.\n"
        )
    else:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _end_everything(reason: str, folder: Path, code: int) -> None:
    """End Ray and this process, because Flower's server thread waits for replies that will never arrive.

    If the raylet is frozen, Ray's own shutdown never returns, so Ray is killed with this process. If another thread
    calls Ray after its end, Ray ends the process itself. So the reason is printed first.
    """
    import ray

    if not ENDING.acquire(blocking=False):
        threading.Event().wait()
    shutdown = threading.Thread(target=ray.shutdown, daemon=True)
    try:
        sys.stderr.write(stop_sentence(reason, folder))
        sys.stderr.flush()
        shutdown.start()
        shutdown.join(SHUTDOWN_S)
    finally:
        os._exit(code)
