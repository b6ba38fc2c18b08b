"""Best-effort loop of `fedsel bench round`: the work of fedsel's clients without Flower, Ray, codec or strategy.

The loop uses fedsel's models, batches, local steps and compression. So the time of a round of the engine, divided by
that of this loop, measures the cost of the engine alone.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from clients.compression.compressors import kept_count, top_indices
from clients.training.steps import train
from fedsel_app.config import PreprocessingConfig, TrainingConfig
from fedsel_app.data.batches import DeviceData, batch_order
from fedsel_app.models.building import build
from fedsel_app.models.device import prepare
from fedsel_app.models.flat_model import FlatModel, evaluate
from fedsel_app.seeds import Purpose, stream
from simulation.bench.baselines import Task, Vector, plain_rounds, random_images

CPU = torch.device("cpu")
NO_BUFFERS = np.zeros(0, np.float32)
FORWARD_BATCH = 256


class BestEffortClients:
    """All clients of a task in one process of one thread."""

    def __init__(self, task: Task) -> None:
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
        return evaluate(self._model, self._data.test_batches(FORWARD_BATCH)).score

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
        indices = top_indices(np.square(vector), kept_count(self._task.kept, vector.size, "ceil"))
        values = vector[indices]
        vector[indices] = 0.0
        vector *= np.float32(0.9)
        self._residual[client] = vector
        return indices, values


def best_effort_rounds(task: Task, rounds: int, workers: int) -> list[float]:
    """Seconds of each round of the best-effort loop in worker processes with one thread each."""
    return plain_rounds(task, rounds, workers, BestEffortClients)
