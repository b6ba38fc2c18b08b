"""Untouched Flower in bench `peers`: FedAvg and a NumPyClient in Flower's Ray engine, as in tutorials.

`main` is called in a process of its own; it reads a `PeerRun` and writes a `PeerResult`.
"""

import logging
import os
import sys
import time
import traceback
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.client import Client, ClientApp, NumPyClient
from flwr.common import Context, Metrics, NDArrays, Scalar, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from laboratory.bench.peer_tasks import PeerResult, PeerRun, read_run, result_of, write_result


@lru_cache(maxsize=1)
def _loaded(run: PeerRun) -> tuple[nn.Module, list[TensorDataset]]:
    """The model and each client's examples, once a process."""
    torch.set_num_threads(run.threads)
    x, y, clients = run.training_set()
    return run.initial_model(), [TensorDataset(x[part], y[part]) for part in map(torch.from_numpy, clients)]


class PlainClient(NumPyClient):
    """Client of Flower's tutorials: loads the weights, trains by a DataLoader, sends the weights."""

    def __init__(self, run: PeerRun, client: int) -> None:
        self._run, self._client = run, client

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train; the metrics hold the number of examples that were trained on, epochs included."""
        task = self._run.task
        model, examples = _loaded(self._run)
        weights, trained = list(model.parameters()), 0
        with torch.no_grad():
            for weight, values in zip(weights, parameters, strict=True):
                weight.copy_(torch.tensor(values))
        optimizer = torch.optim.SGD(weights, lr=task.lr)
        model.train()
        for _ in range(task.epochs):
            for x, y in DataLoader(examples[self._client], batch_size=task.batch, shuffle=True):
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                trained += len(y)
        return _arrays(model), len(examples[self._client]), {"trained": trained}


def _arrays(model: nn.Module) -> NDArrays:
    return [weight.detach().numpy() for weight in model.parameters()]


def simulate(run: PeerRun) -> PeerResult:
    """Simulate the run; the first round includes the start of Ray's workers."""
    task, ends, examples = run.task, list[float](), list[int]()
    last: NDArrays = []

    def round_ended(number: int, parameters: NDArrays, config: dict[str, Scalar]) -> None:
        ends.append(time.perf_counter())
        last[:] = parameters

    def sum_examples(clients: list[tuple[int, Metrics]]) -> Metrics:
        examples.append(sum(int(metrics["trained"]) for _, metrics in clients))
        return {}

    def server_fn(context: Context) -> ServerAppComponents:
        strategy = FedAvg(
            fraction_fit=task.cohort / task.clients,
            fraction_evaluate=0.0,
            min_available_clients=task.clients,
            accept_failures=False,
            initial_parameters=ndarrays_to_parameters(_arrays(run.initial_model())),
            evaluate_fn=round_ended,
            fit_metrics_aggregation_fn=sum_examples,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=run.rounds))

    def client_fn(context: Context) -> Client:
        return PlainClient(run, int(context.node_config["partition-id"])).to_client()

    run_simulation(
        server_app=ServerApp(server_fn=server_fn),
        client_app=ClientApp(client_fn=client_fn),
        num_supernodes=task.clients,
        backend_config={"init_args": {"num_cpus": run.workers}, "client_resources": {"num_cpus": 1.0}},
    )
    return result_of(run, np.diff(ends).tolist(), examples, last)


def main(run: str, result: str) -> None:
    """Simulate the run of one file and write its result into another.

    Where Flower's engine fails, its server's thread waits for answers for ever; the process ends all the same.
    """
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    logging.getLogger("flwr").setLevel(logging.ERROR)
    try:
        write_result(Path(result), simulate(read_run(Path(run))))
    except BaseException:  # noqa: BLE001 - printed, and then the process ends
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
