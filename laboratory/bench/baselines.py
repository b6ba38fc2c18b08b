"""Baselines of bench `round`: the same work in two loops without Flower, and in an untouched Flower app.

The plain loop and the Flower app share only the architecture and the random data with fedsel. The best-effort loop uses
fedsel's models, batches, local steps and compression.
"""

import logging
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, parameters_to_vector, vector_to_parameters

from clients.compressors import top_indices
from clients.local_training import train
from fedsel_app.config import DataConfig, PreprocessingConfig, TrainingConfig
from fedsel_app.data.batches import DeviceData, batch_order
from fedsel_app.data.dataset import Dataset, from_arrays
from fedsel_app.models.architectures import ARCHITECTURES
from fedsel_app.models.building import build
from fedsel_app.models.device import prepare
from fedsel_app.models.flat_model import FlatModel, evaluate
from fedsel_app.seeds import Purpose, stream
from fedsel_app.wire.indices import kept_count

Vector = NDArray[np.float32]
CPU = torch.device("cpu")
NO_BUFFERS = np.zeros(0, np.float32)
FORWARD_BATCH = 256


@dataclass(frozen=True)
class Workload:
    """Work of one round: each client's loss on `probe_batches` mini-batches, and the training of `cohort` clients."""

    name: str
    model: str
    shape: tuple[int, int, int]
    examples: int = 50_000
    test_examples: int = 10_000
    classes: int = 10
    clients: int = 100
    cohort: int = 10
    steps: int = 50
    batch: int = 32
    probe_batches: int = 8
    kept: float = 0.2


TASKS = {
    "cifar10": Workload("CIFAR-10 / AlexNet", "alexnet", (3, 32, 32)),
    "mnist": Workload("MNIST / logistic regression", "logistic", (1, 28, 28), examples=60_000),
}


def random_images(task: Workload) -> Dataset:
    """Random uint8 images of the task's shape: the cost of a step does not depend on their content."""
    rng = stream(0, Purpose.DATA)
    parts = {"train": task.examples, "test": task.test_examples}
    arrays: dict[str, NDArray[Any]] = {
        f"x_{part}": rng.integers(256, size=(count, *task.shape), dtype=np.uint8) for part, count in parts.items()
    }
    arrays |= {f"y_{part}": rng.integers(task.classes, size=count) for part, count in parts.items()}
    return from_arrays(arrays, "The random images")


def cifar10(config: DataConfig) -> Dataset:
    """Data set of the CIFAR-10 task for the engine, as `data` = laboratory.bench.baselines:cifar10."""
    return random_images(TASKS["cifar10"])


def mnist(config: DataConfig) -> Dataset:
    """Data set of the MNIST task for the engine, as `data` = laboratory.bench.baselines:mnist."""
    return random_images(TASKS["mnist"])


class PlainClients:
    """All clients of a task in one process, in plain PyTorch without a framework."""

    def __init__(self, task: Workload) -> None:
        torch.set_num_threads(1)
        dataset = random_images(task)
        self.task = task
        self.module = ARCHITECTURES[task.model].build(task.shape, task.classes)
        self.start = parameters_to_vector(self.module.parameters()).detach().numpy()
        self._x, self._y = torch.from_numpy(dataset.x_train), torch.from_numpy(dataset.y_train)
        self._test = torch.from_numpy(dataset.x_test), torch.from_numpy(dataset.y_test)
        self._mean, self._std = float(dataset.mean.mean()), float(dataset.std.mean())
        self._residual: dict[int, Tensor] = {}

    def _batch(self, client: int, size: int) -> tuple[Tensor, Tensor]:
        own = self.task.examples // self.task.clients
        index = torch.randint(own, (size,)) + client * own
        return self._normalised(self._x[index]), self._y[index]

    def _normalised(self, x: Tensor) -> Tensor:
        return (x.float() / 255.0 - self._mean) / self._std

    def load(self, parameters: Vector) -> None:
        """Take the global model."""
        vector_to_parameters(torch.tensor(parameters), self.module.parameters())

    def probe(self, client: int) -> float:
        """Loss of the loaded model on the client's mini-batches."""
        with torch.no_grad():
            x, y = self._batch(client, self.task.batch * self.task.probe_batches)
            return float(functional.cross_entropy(self.module(x), y))

    def test(self) -> float:
        """Accuracy of the loaded model on the test set."""
        x, y = self._test
        with torch.no_grad():
            hits = [
                (self.module(self._normalised(x[start : start + 256])).argmax(1) == y[start : start + 256]).sum()
                for start in range(0, len(y), 256)
            ]
        return float(torch.stack(hits).sum()) / len(y)

    def train(self, parameters: Vector, client: int) -> Tensor:
        """Change of the weights after the local steps of FedProx."""
        self.load(parameters)
        weights = list(self.module.parameters())
        anchor = [weight.detach().clone() for weight in weights]
        optimizer = torch.optim.SGD(weights, lr=0.05, momentum=0.9)
        for _ in range(self.task.steps):
            optimizer.zero_grad()
            x, y = self._batch(client, self.task.batch)
            functional.cross_entropy(self.module(x), y).backward()  # type: ignore[no-untyped-call]
            for weight, start in zip(weights, anchor, strict=True):
                if weight.grad is not None:
                    weight.grad.add_(weight.detach() - start, alpha=0.1)
            clip_grad_norm_(weights, 2.0)
            optimizer.step()
        return parameters_to_vector(weights).detach() - torch.from_numpy(parameters)

    def compressed(self, parameters: Vector, client: int) -> tuple[NDArray[np.int64], Vector]:
        """Largest entries of the update plus residual; the client keeps the rest as its residual."""
        vector = self.train(parameters, client) + self._residual.get(client, 0.0)
        indices = torch.topk(vector.abs(), int(self.task.kept * vector.numel())).indices
        values = vector[indices]
        vector[indices] = 0.0
        self._residual[client] = vector * 0.9
        return indices.numpy(), values.numpy()


class BestEffortClients:
    """All clients of a task in one process, with fedsel's models, batches, local steps and compression.

    It has no Flower, Ray, codec or strategy. So the time of a round of the engine, divided by that of this loop, is the
    cost of the engine alone.
    """

    def __init__(self, task: Workload) -> None:
        prepare(CPU, threads=1)
        self._task = task
        self._model = FlatModel(build(task.model, task.shape, task.classes, seed=0), CPU)
        self._data = DeviceData(random_images(task), PreprocessingConfig(), CPU)
        self._training = TrainingConfig(local_steps=task.steps, batch_size=task.batch)
        self._rng = stream(0, Purpose.TRAIN)
        self._residual: dict[int, Vector] = {}
        self.start = self._model.export()

    def _order(self, client: int, batches: int) -> list[NDArray[np.int64]]:
        own = self._task.examples // self._task.clients
        return [positions + client * own for positions in batch_order(own, self._task.batch, batches, self._rng)]

    def load(self, parameters: Vector) -> None:
        """Take the global model."""
        self._model.load(parameters, NO_BUFFERS)

    def probe(self, client: int) -> float:
        """Loss of the loaded model on the client's mini-batches."""
        drawn = np.concatenate(self._order(client, self._task.probe_batches))
        chunks = np.split(drawn, range(FORWARD_BATCH, drawn.size, FORWARD_BATCH))
        return evaluate(self._model, self._data.train_batches(chunks, None)).loss

    def test(self) -> float:
        """Accuracy of the loaded model on the test set."""
        return evaluate(self._model, self._data.test_batches(FORWARD_BATCH)).scores["accuracy"]

    def train(self, parameters: Vector, client: int) -> Vector:
        """Change of the weights after the local steps of FedProx."""
        self.load(parameters)
        batches = self._data.train_batches(self._order(client, self._task.steps), None)
        train(self._model, batches, self._training, self._training.lr)
        return self._model.export() - parameters

    def compressed(self, parameters: Vector, client: int) -> tuple[NDArray[np.uint32], Vector]:
        """Largest entries of the update plus residual; the client keeps the rest as its residual."""
        vector = self.train(parameters, client)
        if client in self._residual:
            vector += self._residual[client]
        indices = top_indices(np.square(vector), kept_count(self._task.kept, vector.size))
        values = vector[indices]
        vector[indices] = 0.0
        vector *= np.float32(0.9)
        self._residual[client] = vector
        return indices, values


Clients = PlainClients | BestEffortClients


def _serve(task: Workload, make_clients: Callable[[Workload], Clients], pipe: Connection) -> None:
    clients = make_clients(task)
    pipe.send(None)
    while (message := pipe.recv()) is not None:
        kind, parameters, share = message
        if kind == "probe":
            clients.load(parameters)
            pipe.send([clients.probe(client) for client in share])
        else:
            pipe.send([clients.compressed(parameters, client) for client in share])


def loop_rounds(task: Workload, rounds: int, workers: int, make_clients: Callable[[Workload], Clients]) -> list[float]:
    """Seconds of each round in worker processes with one thread each, which get their work through pipes."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(workers):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(task, make_clients, theirs), daemon=True)
        process.start()
        pipes.append(ours)
        processes.append(process)
    server = make_clients(task)
    torch.set_num_threads(workers)
    model, momentum, seconds = server.start.copy(), np.zeros(server.start.size), []
    for pipe in pipes:
        pipe.recv()
    for _ in range(rounds):
        started = time.perf_counter()
        shares = [list(range(task.clients))[start::workers] for start in range(workers)]
        losses = np.zeros(task.clients)
        for share, answer in zip(shares, _ask(pipes, "probe", model, shares), strict=True):
            losses[share] = answer
        chosen = np.argsort(-losses)[: task.cohort].tolist()
        update = np.zeros(model.size)
        for answer in _ask(pipes, "train", model, [chosen[start::workers] for start in range(workers)]):
            for indices, values in answer:
                update[indices] += values / task.cohort
        momentum = 0.5 * momentum + update
        model = (model + momentum).astype(np.float32)
        server.load(model)
        server.test()
        seconds.append(time.perf_counter() - started)
    for pipe in pipes:
        pipe.send(None)
    for process in processes:
        process.join()
    return seconds


def _ask(pipes: list[Connection], kind: str, model: Vector, shares: list[list[int]]) -> list[list[Any]]:
    for pipe, share in zip(pipes, shares, strict=True):
        pipe.send((kind, model, share))
    return [pipe.recv() for pipe in pipes]


@lru_cache(maxsize=1)
def _clients(task: Workload) -> PlainClients:
    return PlainClients(task)


def flower_rounds(task: Workload, rounds: int, workers: int) -> list[float]:
    """Seconds of each round of Flower's FedAvg in its unmodified Ray engine, without compression.

    `evaluate` on every client replaces the loss probe.
    """
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    from flwr.client import Client, ClientApp, NumPyClient
    from flwr.common import Context, NDArrays, Scalar, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    ends: list[float] = []

    class Plain(NumPyClient):
        def __init__(self, client: int) -> None:
            self._client = client

        def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
            change = _clients(task).train(parameters[0], self._client)
            return [parameters[0] + change.numpy()], 1, {}

        def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
            clients = _clients(task)
            clients.load(parameters[0])
            return clients.probe(self._client), 1, {}

    def client_fn(context: Context) -> Client:
        return Plain(int(context.node_config["partition-id"])).to_client()

    server = PlainClients(task)
    torch.set_num_threads(workers)

    def test(number: int, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, dict[str, Scalar]]:
        ends.append(time.perf_counter())
        server.load(parameters[0])
        return 0.0, {"accuracy": server.test()}

    def server_fn(context: Context) -> ServerAppComponents:
        strategy = FedAvg(
            fraction_fit=task.cohort / task.clients,
            fraction_evaluate=1.0,
            min_available_clients=task.clients,
            initial_parameters=ndarrays_to_parameters([server.start]),
            evaluate_fn=test,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds + 1))

    run_simulation(
        server_app=ServerApp(server_fn=server_fn),
        client_app=ClientApp(client_fn=client_fn),
        num_supernodes=task.clients,
        backend_config={"init_args": {"num_cpus": workers}, "client_resources": {"num_cpus": 1.0}},
    )
    # A round is the time between two tests of the global model. The first includes the start.
    return [float(gap) for gap in np.diff(ends)[1:]]
