"""One run through Flower's Ray engine, in this process."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.client import Client, ClientApp
from flwr.common import Context
from flwr.server import ServerAppComponents

from clients.state import STATE_FOLDER, remove_states
from fedsel_app.client_app import make_client
from fedsel_app.config import ConfigError
from fedsel_app.data.dataset import load
from fedsel_app.data.partition import split
from fedsel_app.models import flat_model
from fedsel_app.models.device import choose_device
from fedsel_app.records.own_folder import is_own_folder, refuse_used
from fedsel_app.records.run_folder import locked
from fedsel_app.records.tensorboard import refuse_absent
from fedsel_app.server_app import make_server, run_folder
from simulation.engines.prompt import PromptServerApp, prompt_delivery
from simulation.experiments.configuration import AppConfig
from strategies.testing.rehearsal import make_context

FAILED = 1
INTERRUPTED = 130
MESSAGES_PER_WORKER = 2
"""Of a question to all clients: a worker that is done early takes another's second."""


def worker_count(config: AppConfig) -> int:
    """Ray actors of a run: `workers`, or one for each core this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return config.execution.workers or usable or 1


def refuse_unrunnable(config: AppConfig) -> None:
    """Raise ConfigError now for what a run would meet only after its processes have started.

    That is settings that the method refuses, a used run folder, a device that is not here, absent data, and a model or
    a partition that does not fit it.
    """
    run = config.run
    config.strategy(make_context(config.method, **config.groups()))
    if not config.records.resume:
        refuse_used(run_folder(config))
    refuse_foreign_states(run_folder(config), resume=config.records.resume)
    choose_device(config.execution.device)
    if config.records.tensorboard:
        refuse_absent()
    dataset = load(config.data, run.seed)
    flat_model.build(run.model, dataset.sample_shape, dataset.classes, run.seed)
    split(config.partition, dataset.y_train, run.clients, run.seed, dataset.owners)


def simulate(config: AppConfig, on_round: Callable[[dict[str, Any]], None], *, verbose: bool = False) -> Path:
    """Run `config` to its end and return the run folder; with `resume`, go on from its last checkpoint.

    Ctrl-C and a worker that is dead for good end Ray and this process. Whatever the server or the engine raises is
    raised here.
    """
    refuse_unrunnable(config)
    from flwr.simulation import run_simulation

    from simulation.engines.ray_engine import REPLACED, join, watched

    if not verbose:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
    folder = run_folder(config)
    state = folder / STATE_FOLDER
    config = replace(config, records=replace(config.records, out=str(folder), state_dir=str(folder)))
    resources = {"num_cpus": 1.0, "num_gpus": config.execution.client_gpus}
    address, engine = config.execution.ray_address, {"address": "local", "include_dashboard": False}
    if address:
        # A worker of a node that is gone would wait for another without end: there the run ends instead.
        workers = join(address, resources, state)
    else:
        workers = worker_count(config)
        resources |= REPLACED
        engine["num_cpus"] = workers

    def server_fn(context: Context) -> ServerAppComponents:
        return make_server(config, on_round, pool=MESSAGES_PER_WORKER * workers)

    def client_fn(context: Context) -> Client:
        return make_client(config, context, pooled=True)

    try:
        with watched(lambda what: _end_everything(what, folder, FAILED)), prompt_delivery():
            run_simulation(
                server_app=PromptServerApp(server_fn=server_fn),
                client_app=ClientApp(client_fn=client_fn),
                num_supernodes=config.run.clients,
                backend_config={"init_args": engine, "client_resources": resources},  # type: ignore[dict-item]
                verbose_logging=verbose,
            )
    except KeyboardInterrupt:
        _end_everything("Interrupted", folder, INTERRUPTED)
    discard_states(folder)
    return folder


def refuse_foreign_states(folder: Path, *, resume: bool) -> None:
    """Raise ConfigError if the run in `folder` would keep its clients' states in a folder that is not its own."""
    state = folder / STATE_FOLDER
    if os.path.lexists(state) and not (resume and is_own_folder(state)):
        raise ConfigError(
            f"{state} exists, and the clients' states would lie there. Choose another 'out', or move it away."
        )


def discard_states(folder: Path) -> None:
    """Remove the clients' states from the folder of a finished run; those of any other run stay."""
    if (folder / "summary.json").is_file():
        with locked(folder):
            remove_states(folder / STATE_FOLDER)


def _end_everything(what: str, folder: Path, code: int) -> None:
    """Flower's server thread waits for replies that will not come, so the process cannot end by returning."""
    import ray

    ray.shutdown()
    sys.stderr.write(f"\n{what}; the rounds so far are kept. Go on with: fedsel run --resume {folder}\n")
    sys.stderr.flush()
    os._exit(code)
